/* pair: poll and select on an epoll set that cannot be rung: another set has its member too, or it was inherited
 * over a fork, or a set in it is such a one. */
#include "contract.h"

static int fd;

static void server(void) {
    fd = serve_one();
    while (hear()) {
        /* By then the other one sleeps. */
        usleep(100000);
        write_all(fd, "x", 1);
    }
}

static void add(int set, int member) {
    struct epoll_event event = {.events = EPOLLIN};
    need(epoll_ctl(set, EPOLL_CTL_ADD, member, &event) == 0, "epoll_ctl");
}

static void read_one(void) {
    char byte;
    read_all(fd, &byte, 1);
}

static void with_poll(const char *name, int set) {
    tell(1);
    say_poll(name, set, POLLIN, LONG_MS);
    read_one();
}

static void with_select(const char *name, int set) {
    fd_set read;
    struct timeval time = {.tv_sec = LONG_S};
    FD_ZERO(&read);
    FD_SET(set, &read);
    tell(1);
    result(name, select(set + 1, &read, NULL, NULL, &time));
    read_one();
}

static void client(void) {
    fd = dial();
    int first = epoll_create1(0), second = epoll_create1(0), outer = epoll_create1(0);
    add(first, fd);
    add(second, fd);
    add(outer, second);
    with_poll("the first", first);
    with_poll("the second", second);
    with_select("select on the second", second);
    with_poll("a set around it", outer);
    pid_t child = fork();
    if (child == 0) {
        with_poll("in a child", first);
        with_poll("around it in a child", outer);
        _exit(0);
    }
    need(waitpid(child, NULL, 0) == child, "waitpid");
    tell(0);
}
