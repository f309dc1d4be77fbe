/* pair: a server that waits in poll and makes a child for each connection, which makes another, which makes one more that
 * serves, as ncat's shells do; 40 connections of one client come before the first of them is accepted. */
#include "contract.h"

#define CONNECTIONS 40
#define GENERATIONS 3

static void serve(int fd) {
    for (int generation = 1; generation < GENERATIONS; generation++) {
        int status = 1;
        pid_t child = fork();
        need(child >= 0, "fork");
        if (child == 0)
            continue;
        need(waitpid(child, &status, 0) == child, "a child's child");
        _exit(status != 0);
    }
    char letter;
    while (read(fd, &letter, 1) == 1)
        write_all(fd, &letter, 1);
    _exit(0);
}

static void server(void) {
    int listening = listener(64);
    hear();
    for (int i = 0; i < CONNECTIONS; i++) {
        wait_for(listening, POLLIN);
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        pid_t child = fork();
        need(child >= 0, "fork");
        if (child == 0) {
            close(listening);
            serve(fd);
        }
        close(fd);
    }
    say_ended_well(CONNECTIONS);
}

static void client(void) {
    int port = hear(), fds[CONNECTIONS], answered = 0;
    for (int i = 0; i < CONNECTIONS; i++)
        fds[i] = dial_port(port);
    tell(0);
    for (int i = 0; i < CONNECTIONS; i++) {
        char letter = 'a' + i % 26, answer = 0;
        answered += send(fds[i], &letter, 1, MSG_NOSIGNAL) == 1 && read(fds[i], &answer, 1) == 1 &&
                    answer == letter;
    }
    for (int i = 0; i < CONNECTIONS; i++)
        close(fds[i]);
    say("answered %d", answered);
}
