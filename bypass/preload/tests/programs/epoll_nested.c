/* pair: an epoll set inside an epoll set, and poll and select on a set. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    hear();
    write_all(fd, "x", 1);
    hear();
    write_all(fd, "y", 1);
    hear();
}

static void client(void) {
    int fd = dial(), inner = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 1};
    result("add socket", epoll_ctl(inner, EPOLL_CTL_ADD, fd, &event));
    event.data.u32 = 2;
    result("add set", epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event));
    result("add a set to itself", epoll_ctl(inner, EPOLL_CTL_ADD, inner, &event));
    result("a circle", epoll_ctl(inner, EPOLL_CTL_ADD, outer, &event));
    result("outer idle", epoll_wait(outer, &event, 1, 0));
    say_poll("inner idle", inner, POLLIN | POLLOUT, 0);
    tell(0);
    result("outer", epoll_wait(outer, &event, 1, LONG_MS));
    say("outer says %d", event.data.u32);
    say_poll("inner", inner, POLLIN | POLLOUT, LONG_MS);
    say_poll("outer", outer, POLLIN, LONG_MS);
    result("inner", epoll_wait(inner, &event, 1, 0));
    say("inner says %d", event.data.u32);
    char byte;
    read_all(fd, &byte, 1);
    result("outer idle", epoll_wait(outer, &event, 1, 0));
    tell(0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(inner, &set);
    struct timeval time = {.tv_sec = LONG_S};
    result("select on a set", select(inner + 1, &set, NULL, NULL, &time));
    say("set %d", FD_ISSET(inner, &set) != 0);
    read_all(fd, &byte, 1);
    tell(0);
}
