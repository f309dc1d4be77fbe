/* pair: a client connects, forks and ends, as daemons do; its child waits for an answer, in read or in poll, when
 * the server is killed. */
#include "contract.h"

static void server(void) {
    int listening = listener(16);
    for (int round = 0; round < 2; round++) {
        int accepted[2];
        char letter;
        need(pipe(accepted) == 0, "pipe");
        pid_t child = fork();
        if (child == 0) {
            int fd = accept(listening, NULL, NULL);
            need(fd >= 0, "accept");
            write_all(accepted[1], "a", 1);
            for (;;)
                pause();
        }
        read_all(accepted[0], &letter, 1);
        hear();
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        hear();
    }
}

static void wait_for_the_end(int fd, int in_poll) {
    char letter;
    alarm(LONG_S);
    if (in_poll)
        wait_for(fd, POLLIN);
    result(in_poll ? "recv after poll" : "recv", recv(fd, &letter, 1, 0));
}

static void client(void) {
    int port = hear();
    for (int round = 0; round < 2; round++) {
        int over[2];
        char letter;
        need(pipe(over) == 0, "pipe");
        pid_t parent = fork();
        if (parent == 0) {
            int fd = dial_port(port);
            if (fork() != 0)
                _exit(0);
            wait_for_the_end(fd, round);
            _exit(0);
        }
        close(over[1]);
        waitpid(parent, NULL, 0);
        usleep(100000);
        tell(0);
        /* Ends with the child. */
        need(read(over[0], &letter, 1) == 0, "end");
        close(over[0]);
        tell(0);
    }
}
