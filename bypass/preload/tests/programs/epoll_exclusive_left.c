/* pair: a set that no longer has the listener takes no wake from one that has: EPOLLEXCLUSIVE, as in a server of
 * which one worker stops to accept. */
#include "contract.h"

#define CONNECTIONS 8

static int listening, ready[2];

static void add(int set, int fd, unsigned events) {
    struct epoll_event event = {.events = events, .data.fd = fd};
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
}

static int event_of(int set) {
    struct epoll_event event = {0};
    need(epoll_wait(set, &event, 1, LONG_MS) == 1, "epoll_wait");
    return event.data.fd;
}

/* Serves one, and then waits for that one only. */
static void leaving(void) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    char letter;
    add(set, listening, EPOLLIN | EPOLLEXCLUSIVE);
    need(event_of(set) == listening, "listener");
    int fd = accept(listening, NULL, NULL);
    add(set, fd, EPOLLIN);
    result("leave", epoll_ctl(set, EPOLL_CTL_DEL, listening, NULL));
    need(write(ready[1], "l", 1) == 1, "pipe");
    need(event_of(set) == fd, "event");
    read_all(fd, &letter, 1);
    say("the one that has left read %c", letter);
    _exit(0);
}

static void serving(void) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    set_nonblocking(listening);
    add(set, listening, EPOLLIN | EPOLLEXCLUSIVE);
    need(write(ready[1], "s", 1) == 1, "pipe");
    for (int served = 0; served < CONNECTIONS;) {
        need(event_of(set) == listening, "listener");
        int fd = accept(listening, NULL, NULL);
        if (fd < 0)
            continue;
        write_all(fd, "k", 1);
        served++;
    }
    _exit(0);
}

static pid_t started(void (*work)(void)) {
    pid_t child = fork();
    char byte;
    if (child == 0)
        work();
    need(child > 0 && read(ready[0], &byte, 1) == 1, "pipe");
    return child;
}

static void server(void) {
    int status;
    need(pipe(ready) == 0, "pipe");
    listening = listener(16);
    pid_t leaver = started(leaving), other = started(serving);
    /* Both are most likely asleep then; one that is not is not rung. */
    usleep(50000);
    tell(0);
    hear();
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    need(waitpid(leaver, &status, 0) == leaver, "waitpid");
    say("child ended %d", status);
}

static void client(void) {
    int port = hear(), first = dial_port(port), served = 0;
    hear();
    for (int i = 0; i < CONNECTIONS; i++) {
        struct pollfd one = {.fd = dial_port(port), .events = POLLIN};
        served += poll(&one, 1, LONG_MS) == 1;
    }
    say("served %d", served);
    write_all(first, "x", 1);
    tell(0);
}
