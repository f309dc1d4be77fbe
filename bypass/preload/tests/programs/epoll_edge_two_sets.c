/* pair: a connection is a member of two edge-triggered sets: each has an event for what comes, and no more of them. */
#include "contract.h"

#define QUIET_MS 100
#define ROUNDS 2

static int set_with(int fd) {
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    return set;
}

/* Events until there are none for a while; more than a few are as bad as any number. */
static int is_few(int set, unsigned *all) {
    struct epoll_event event;
    int count = 0;
    for (*all = 0; count < 20 && epoll_wait(set, &event, 1, QUIET_MS) == 1; count++)
        *all |= event.events;
    return count < 20;
}

static void server(void) {
    int fd = serve_one(), sets[2] = {set_with(fd), set_with(fd)};
    unsigned all = 0;
    for (int i = 0; i < 2; i++) {
        int few = is_few(sets[i], &all);
        say("set %d: few %d, writable %d", i, few, (all & EPOLLOUT) != 0);
    }
    for (int round = 0; round < ROUNDS; round++) {
        tell(0);
        wait_for(fd, POLLIN);
        for (int i = 0; i < 2; i++) {
            int few = is_few(sets[i], &all);
            say("set %d: few %d, readable %d", i, few, (all & EPOLLIN) != 0);
        }
    }
    tell(0);
    wait_for(fd, POLLRDHUP);
    for (int i = 0; i < 2; i++) {
        int few = is_few(sets[i], &all);
        say("set %d: few %d, ended %d", i, few, (all & EPOLLIN) != 0);
    }
    char bytes[ROUNDS];
    read_all(fd, bytes, ROUNDS); /* unread bytes would be a reset */
    /* Full, and then not any more, between two looks of the second set. */
    static char many[1 << 16];
    set_nonblocking(fd);
    while (write(fd, many, sizeof many) > 0)
        ;
    tell(0);
    struct epoll_event event = {0};
    while (!(event.events & EPOLLOUT))
        need(epoll_wait(sets[1], &event, 1, LONG_MS) == 1, "room");
    say("room is reported");
}

static void client(void) {
    int fd = dial();
    for (int round = 0; round < ROUNDS; round++) {
        hear();
        write_all(fd, "x", 1);
    }
    hear();
    shutdown(fd, SHUT_WR);
    hear();
    char some[1 << 16];
    ssize_t got;
    while ((got = read(fd, some, sizeof some)) > 0)
        ;
    result("end", got);
}
