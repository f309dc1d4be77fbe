/* pair: members that are added twice, missing, closed, duplicated, or of the wrong kind. */
#include "contract.h"

static int epoll;

static long change(const char *name, int operation, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0x1122334455667788};
    return result(name, epoll_ctl(epoll, operation, fd, &event));
}

static void server(void) {
    int fd = serve_one();
    write_all(fd, "abc", 3);
    meet();
    fd = serve_one();
    write_all(fd, "abc", 3);
    meet();
}

static void client(void) {
    struct epoll_event events_seen[4] = {{0}};
    epoll = epoll_create(1);
    result("epoll_create of 0", epoll_create(0));
    result("epoll_create1 with a wrong flag", epoll_create1(12345));
    int fd = dial();
    wait_for(fd, POLLIN);
    change("modify before add", EPOLL_CTL_MOD, fd);
    change("delete before add", EPOLL_CTL_DEL, fd);
    change("add", EPOLL_CTL_ADD, fd);
    change("add twice", EPOLL_CTL_ADD, fd);
    change("wrong operation", 99, fd);
    change("closed descriptor", EPOLL_CTL_ADD, 900);
    int file = open("/proc/self/status", O_RDONLY);
    change("a file", EPOLL_CTL_ADD, file);
    int right = epoll;
    epoll = fd;
    change("no epoll set", EPOLL_CTL_ADD, file);
    epoll = right;
    result("wait on no set", epoll_wait(fd, events_seen, 4, 0));
    result("wait for 0 events", epoll_wait(epoll, events_seen, 0, 0));
    result("wait", epoll_wait(epoll, events_seen, 4, 0));
    say("data kept %d", events_seen[0].data.u64 == 0x1122334455667788);

    int copy = dup(fd);
    change("add the duplicate", EPOLL_CTL_ADD, copy);
    result("wait", epoll_wait(epoll, events_seen, 4, 0));
    change("delete the duplicate", EPOLL_CTL_DEL, copy);
    close(copy);
    result("wait", epoll_wait(epoll, events_seen, 4, 0));
    close(fd);
    result("wait after close", epoll_wait(epoll, events_seen, 4, 0));
    meet();

    int second = dial();
    say("the number is used again %d", second == fd);
    wait_for(second, POLLIN);
    result("wait", epoll_wait(epoll, events_seen, 4, 0));
    change("add", EPOLL_CTL_ADD, second);
    result("wait", epoll_wait(epoll, events_seen, 4, 0));
    close(epoll);
    result("wait on a closed set", epoll_wait(epoll, events_seen, 4, 0));
    char byte;
    result("the member is untouched", read(second, &byte, 1));
    meet();
}
