/* pair: edge-triggered epoll reports each arrival once. */
#include "contract.h"

static void look(const char *name, int epoll, int timeout_ms) {
    struct epoll_event event = {0};
    int count = epoll_wait(epoll, &event, 1, timeout_ms);
    if (count == 1)
        say("%s: %s", name, events(event.events));
    else
        result(name, count);
}

static void server(void) {
    int fd = serve_one();
    for (int i = 0; i < 3; i++) {
        hear();
        write_all(fd, "abcd", 4);
    }
    hear();
    shutdown(fd, SHUT_WR);
    hear();
    close(fd);
    tell(0);
}

static void client(void) {
    char buffer[32];
    int fd = dial(), epoll = epoll_create1(0);
    set_nonblocking(fd);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    result("add", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    look("writable at first", epoll, LONG_MS);
    look("once", epoll, 0);
    tell(0);
    look("first arrival", epoll, LONG_MS);
    look("reported once", epoll, 0);
    tell(0);
    look("second arrival on top of the unread first", epoll, LONG_MS);
    look("reported once", epoll, 0);
    result("read all", read(fd, buffer, sizeof buffer));
    result("empty", read(fd, buffer, sizeof buffer));
    look("reading makes no edge", epoll, 0);
    tell(0);
    look("third arrival", epoll, LONG_MS);
    result("modify", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event));
    look("modify reports the state again", epoll, 0);
    look("once", epoll, 0);
    result("read all", read(fd, buffer, sizeof buffer));
    tell(0);
    look("half close", epoll, LONG_MS);
    look("once", epoll, 0);
    result("read the end", read(fd, buffer, sizeof buffer));
    tell(0);
    hear();
    result("delete", epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    result("add again", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    look("added again", epoll, 0);
}
