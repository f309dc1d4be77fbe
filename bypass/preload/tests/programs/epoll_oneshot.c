/* pair: EPOLLONESHOT disarms until the member is modified. */
#include "contract.h"

static void look(const char *name, int epoll) {
    struct epoll_event event = {0};
    int count = epoll_wait(epoll, &event, 1, 0);
    if (count == 1)
        say("%s: %s", name, events(event.events));
    else
        result(name, count);
}

static void server(void) {
    int fd = serve_one();
    write_all(fd, "ab", 2);
    meet();
    write_all(fd, "cd", 2);
    meet();
    close(fd);
    meet();
}

static void client(void) {
    char buffer[8];
    int fd = dial(), epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
    wait_for(fd, POLLIN);
    result("add", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
    look("first", epoll);
    look("disarmed", epoll);
    meet();
    read_all(fd, buffer, 4);
    look("disarmed for new bytes too", epoll);
    result("modify", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event));
    look("armed, nothing there", epoll);
    meet();
    wait_for(fd, POLLIN);
    meet();
    look("armed, at the end", epoll);
    look("disarmed at the end", epoll);
    event.events = EPOLLIN | EPOLLOUT | EPOLLONESHOT | EPOLLET;
    result("modify", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event));
    look("one shot with edge", epoll);
    look("disarmed", epoll);
}
