/* pair: both sides have shut their directions; the close that follows raises no event in an edge-triggered set. */
#include "contract.h"

#define QUIET_MS 150

/* All events until there are none for a while, as one set of bits. */
static unsigned all_events(int set) {
    struct epoll_event event;
    unsigned all = 0;
    while (epoll_wait(set, &event, 1, QUIET_MS) == 1)
        all |= event.events;
    return all;
}

static void both_ends(int fd) {
    need(shutdown(fd, SHUT_WR) == 0, "shutdown");
    wait_for(fd, POLLIN);
    char byte;
    result("end", read(fd, &byte, 1));
    meet();
}

static void server(void) {
    int fd = serve_one(), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    both_ends(fd);
    unsigned all = all_events(set);
    say("both ends are seen %d", (all & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)) == (EPOLLIN | EPOLLRDHUP | EPOLLHUP));
    tell(0);
    hear(); /* the client has closed */
    say("events of the close %x", all_events(set));
    close(fd);
}

static void client(void) {
    int fd = dial();
    both_ends(fd);
    hear();
    close(fd);
    tell(0);
}
