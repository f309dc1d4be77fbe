/* pair: a child for each of many connections of one client, and all children call exec in the same moment, in which the
 * client is stopped. */
#include "contract.h"

#define CONNECTIONS 22

static void server(void) {
    int listening = listener(64), gate[2];
    need(pipe2(gate, O_CLOEXEC) == 0, "pipe");
    pid_t other = hear();
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        pid_t child = fork();
        need(child >= 0, "fork");
        if (child == 0) {
            char byte;
            close(gate[1]);
            dup2(fd, 0);
            dup2(fd, 1);
            close(fd);
            read(gate[0], &byte, 1);
            execl("/bin/cat", "cat", NULL);
            _exit(9);
        }
        close(fd);
    }
    need(kill(other, SIGSTOP) == 0, "stop");
    close(gate[1]);
    usleep(300000);
    need(kill(other, SIGCONT) == 0, "go on");
    say_ended_well(CONNECTIONS);
}

static void client(void) {
    int port = hear(), fds[CONNECTIONS], answered = 0;
    for (int i = 0; i < CONNECTIONS; i++)
        fds[i] = dial_port(port);
    tell(getpid());
    for (int i = 0; i < CONNECTIONS; i++) {
        char letter = 'a' + i, answer = 0;
        answered += send(fds[i], &letter, 1, MSG_NOSIGNAL) == 1 && read(fds[i], &answer, 1) == 1 &&
                    answer == letter;
    }
    for (int i = 0; i < CONNECTIONS; i++)
        close(fds[i]);
    say("answered %d", answered);
}
