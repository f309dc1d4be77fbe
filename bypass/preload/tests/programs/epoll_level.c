/* pair: level-triggered epoll reports a state as long as it lasts. */
#include "contract.h"

static void look(const char *name, int epoll, int timeout_ms) {
    struct epoll_event event = {0};
    int count = epoll_wait(epoll, &event, 1, timeout_ms);
    if (count == 1)
        say("%s: %s data %d", name, events(event.events), (int)event.data.u32);
    else
        result(name, count);
}

static void change(int epoll, int operation, int fd, unsigned wanted) {
    struct epoll_event event = {.events = wanted, .data.u32 = 7};
    result("epoll_ctl", epoll_ctl(epoll, operation, fd, &event));
}

static void server(void) {
    int fd = serve_one();
    meet();
    write_all(fd, "abcd", 4);
    meet();
    meet();
    shutdown(fd, SHUT_WR);
    meet();
    meet();
    close(fd);
    meet();
}

static void client(void) {
    char buffer[8];
    int fd = dial(), epoll = epoll_create1(EPOLL_CLOEXEC);
    change(epoll, EPOLL_CTL_ADD, fd, EPOLLIN);
    look("nothing yet", epoll, 0);
    look("nothing for 20 ms", epoll, 20);
    change(epoll, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT);
    look("writable", epoll, 0);
    look("still writable", epoll, 0);
    change(epoll, EPOLL_CTL_MOD, fd, EPOLLIN);
    meet();
    look("readable", epoll, LONG_MS);
    look("still readable", epoll, 0);
    result("read half", read(fd, buffer, 2));
    meet();
    look("half is left", epoll, 0);
    result("read the rest", read(fd, buffer, 8));
    look("empty", epoll, 0);
    change(epoll, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLRDHUP);
    meet();
    look("half closed", epoll, LONG_MS);
    result("read", read(fd, buffer, 8));
    look("still half closed", epoll, 0);
    meet();
    change(epoll, EPOLL_CTL_MOD, fd, 0);
    look("no interest", epoll, 0);
    meet();
    shutdown(fd, SHUT_WR);
    look("hang-up comes without interest", epoll, LONG_MS);
    change(epoll, EPOLL_CTL_DEL, fd, 0);
    look("deleted", epoll, 0);
    meet();
}
