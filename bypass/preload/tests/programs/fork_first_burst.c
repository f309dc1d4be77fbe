/* pair: more connections come at once than one client's memory has places for processes, before the server forks
 * its first child of all: each is answered, the last ones once children of others have ended. */
#include "contract.h"

#define CONNECTIONS 40

/* By accept that blocks, by poll, and by an epoll set with and without edges. */
static int next(int listening, int way, int set) {
    struct pollfd one = {.fd = listening, .events = POLLIN};
    struct epoll_event event;
    for (;;) {
        int fd = accept(listening, NULL, NULL);
        if (fd >= 0)
            return fd;
        need(errno == EAGAIN, "accept");
        if (way == 1)
            need(poll(&one, 1, LONG_MS) == 1, "poll");
        else
            need(epoll_wait(set, &event, 1, LONG_MS) == 1, "epoll_wait");
    }
}

static void burst(int way) {
    int listening = listener(64), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | (way == 3 ? EPOLLET : 0)};
    if (way > 0)
        set_nonblocking(listening);
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "epoll_ctl");
    hear();
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = next(listening, way, set);
        serve_in_child(listening, fd);
    }
    close(listening);
    close(set);
    say_ended_well(CONNECTIONS);
}

static void server(void) {
    /* Each in a process that has not forked with connections before. */
    for (int way = 0; way < 4; way++) {
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
    /* Meanwhile a server that makes a child for each has made as many as it can. */
    usleep(250000);
    for (int i = 0; i < CONNECTIONS; i++) {
        char letter = 'a' + i % 26, answer = 0;
        answered += send(fds[i], &letter, 1, MSG_NOSIGNAL) == 1 && read(fds[i], &answer, 1) == 1 &&
                    answer == letter;
        close(fds[i]);
    }
    return answered;
}

static void client(void) {
    for (int way = 0; way < 4; way++)
        say("answered %d", answers(hear()));
}
