/* pair: more connections come at once than one client's memory has places for processes, before the server, which
 * waits in accept or in poll, forks its first child of all; no child ends before each of them has its answer. */
#include "contract.h"

#define CONNECTIONS 60

static void serve(int fd) {
    char letter;
    while (read(fd, &letter, 1) == 1)
        write_all(fd, &letter, 1);
    _exit(0);
}

static void burst(int by_poll) {
    int listening = listener(128);
    hear();
    for (int i = 0; i < CONNECTIONS; i++) {
        if (by_poll)
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
    int good = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        int status;
        need(wait(&status) > 0, "wait");
        good += status == 0;
    }
    say("children ended well %d", good);
    close(listening);
}

static void server(void) {
    /* Each in a process that has not forked with connections before. */
    for (int by_poll = 0; by_poll < 2; by_poll++) {
        pid_t child = fork();
        if (child == 0) {
            burst(by_poll);
            _exit(0);
        }
        need(waitpid(child, NULL, 0) == child, "waitpid");
    }
}

static int answers(int port) {
    int fds[CONNECTIONS], answered = 0;
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
    return answered;
}

static void client(void) {
    for (int by_poll = 0; by_poll < 2; by_poll++)
        say("answered %d", answers(hear()));
}
