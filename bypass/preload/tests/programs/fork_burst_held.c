/* pair: more connections come at once than one client's memory has places for processes, before the server, which
 * waits in accept, in poll or in an epoll set, forks its first child of all; no child ends before each of them has its
 * answer. As inetd does, the last server does not let the clients connect first. */
#include "contract.h"

#define CONNECTIONS 60

enum way { BY_ACCEPT, BY_POLL, BY_EPOLL, AT_ONCE, WAYS };

static void wait_by(enum way way, int listening, int set) {
    struct epoll_event event;
    if (way == BY_POLL)
        wait_for(listening, POLLIN);
    if (way >= BY_EPOLL)
        need(epoll_wait(set, &event, 1, LONG_MS) == 1, "epoll_wait");
}

static void burst(enum way way) {
    int listening = listener(128), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    if (way >= BY_EPOLL)
        need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "epoll_ctl");
    if (way != AT_ONCE)
        hear();
    for (int i = 0; i < CONNECTIONS; i++) {
        wait_by(way, listening, set);
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        serve_in_child(listening, fd);
    }
    say_ended_well(CONNECTIONS);
    if (way == AT_ONCE)
        hear();
    close(listening);
    close(set);
}

static void server(void) {
    /* Each in a process that has not forked with connections before. */
    for (int way = 0; way < WAYS; way++) {
        pid_t child = fork();
        if (child == 0) {
            burst(way);
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
    for (int way = 0; way < WAYS; way++)
        say("answered %d", answers(hear()));
}
