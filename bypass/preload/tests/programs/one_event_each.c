/* pair: epoll_wait for one event at a time, with a connection that is always ready and files of the
 * kernel's: each has its turn. */
#include "contract.h"

static void server(void) {
    int fd = serve_one(), wake = eventfd(1, 0), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    event.data.u64 = 2;
    epoll_ctl(set, EPOLL_CTL_ADD, wake, &event);
    wait_for(fd, POLLIN);
    int seen[3] = {0};
    for (int i = 0; i < 300; i++) {
        need(epoll_wait(set, &event, 1, LONG_MS) == 1, "epoll_wait");
        seen[event.data.u64]++;
    }
    say("connection %d, file %d", seen[1] > 50, seen[2] > 50);
    meet();
}

static void client(void) {
    int fd = dial();
    write_all(fd, "x", 1);
    meet();
}
