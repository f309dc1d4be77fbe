/* pair: more processes that each serve one connection at a time than share the memory of one client, and a
 * client that keeps more connections than those are. */
#include "contract.h"

#define CHILDREN 40
#define CONNECTIONS 36

static void child_loop(int listening, int ready) {
    write_all(ready, "r", 1);
    for (;;) {
        char letter;
        int fd = accept(listening, NULL, NULL);
        if (fd < 0)
            _exit(1);
        while (read(fd, &letter, 1) == 1) {
            letter++;
            if (write(fd, &letter, 1) != 1)
                _exit(2);
        }
        close(fd);
    }
}

static void server(void) {
    int listening = listener_on("127.0.0.1", 64), ready[2];
    char byte;
    pid_t children[CHILDREN];
    need(pipe(ready) == 0, "pipe");
    for (int i = 0; i < CHILDREN; i++)
        if ((children[i] = fork()) == 0)
            child_loop(listening, ready[1]);
    for (int i = 0; i < CHILDREN; i++)
        read_all(ready[0], &byte, 1);
    usleep(200000);
    tell(port_of(listening));
    hear();
    for (int i = 0; i < CHILDREN; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
}

static void client(void) {
    int port = hear(), fds[CONNECTIONS], right = 0;
    struct timeval wait = {.tv_sec = LONG_S};
    for (int i = 0; i < CONNECTIONS; i++) {
        char letter = 'a' + i % 10, answer = 0;
        fds[i] = dial_port(port);
        need(setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0, "SO_RCVTIMEO");
        write_all(fds[i], &letter, 1);
        if (read(fds[i], &answer, 1) != 1)
            break;
        right += answer == letter + 1;
    }
    say("right answers %d", right);
    tell(0);
}
