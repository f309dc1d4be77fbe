/* pair: an epoll set under several numbers: dup, F_DUPFD_CLOEXEC and dup3, as event loops make them
 * (a clone of mio's registry adds sockets through a duplicate and waits through the original). */
#include "contract.h"

static void add(int set, int fd, unsigned wanted, uint64_t data) {
    struct epoll_event event = {.events = wanted, .data.u64 = data};
    result("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
}

static uint64_t next(const char *name, int set) {
    struct epoll_event event;
    int count = epoll_wait(set, &event, 1, LONG_MS);
    if (count == 1)
        say("%s: %s of %d", name, events(event.events & ~EPOLLOUT), (int)event.data.u64);
    else
        result(name, count);
    return event.data.u64;
}

static void nothing(const char *name, int set) {
    struct epoll_event event;
    result(name, epoll_wait(set, &event, 1, 0));
}

static int answer(int set, int listening) {
    next("a connection", set);
    int fd = accept(listening, NULL, NULL);
    outcome("accept", fd);
    return fd;
}

static void server(void) {
    int listening = listener_on("127.0.0.1", 16), duplicates[3];
    int set = epoll_create1(EPOLL_CLOEXEC);
    duplicates[0] = dup(set);
    duplicates[1] = fcntl(set, F_DUPFD_CLOEXEC, 50);
    duplicates[2] = dup3(set, 60, O_CLOEXEC);
    say("dup3 gives 60: %d", duplicates[2] == 60);
    add(duplicates[0], listening, EPOLLIN, 1);
    struct epoll_event again = {.events = EPOLLIN, .data.u64 = 1};
    result("add through another number", epoll_ctl(set, EPOLL_CTL_ADD, listening, &again));
    tell(port_of(listening));

    /* Added through a duplicate, seen through the original and through the other duplicates. */
    int first = answer(set, listening);
    add(duplicates[1], first, EPOLLIN | EPOLLRDHUP | EPOLLET, 2);
    nothing("nothing has come", duplicates[2]);
    meet();
    next("bytes, by a duplicate", duplicates[2]);
    char byte;
    result("read", read(first, &byte, 1));
    nothing("an edge is reported once, whatever the number", set);

    /* A change through one number counts for all. */
    struct epoll_event both = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = 3};
    result("modify by a duplicate", epoll_ctl(duplicates[0], EPOLL_CTL_MOD, first, &both));
    meet();
    next("with its new data, by the original", set);

    /* The set lives as long as one of its numbers. */
    result("close the original", close(set));
    result("wait on a closed number", epoll_wait(set, &both, 1, 0));
    next("still there", duplicates[0]);
    result("read", read(first, &byte, 1));
    result("close a duplicate", close(duplicates[0]));
    meet();
    int second = answer(duplicates[1], listening);
    add(duplicates[2], second, EPOLLIN, 4);
    meet();
    next("bytes", duplicates[1]);
    result("read", read(second, &byte, 1));
    int wake = eventfd(1, 0);
    add(duplicates[1], wake, EPOLLIN, 5);
    next("a file of the kernel's", duplicates[2]);
    result("delete", epoll_ctl(duplicates[2], EPOLL_CTL_DEL, wake, NULL));

    /* A duplicate as a member of another set, and over a number that is in use. */
    int outer = epoll_create1(0);
    add(outer, duplicates[1], EPOLLIN, 6);
    nothing("inner set has nothing", outer);
    meet();
    next("the inner set", outer);
    say_poll("poll of a duplicate", duplicates[2], POLLIN, LONG_MS);
    int over = dup2(duplicates[2], outer);
    say("dup2 over a set: %d", over == outer);
    next("the number now means the inner set", outer);
    result("set in itself", epoll_ctl(outer, EPOLL_CTL_ADD, duplicates[1], &both));
    close(duplicates[1]);
    close(duplicates[2]);
    next("by the last number", outer);
    result("close the last", close(outer));
    meet();
}

static void client(void) {
    int port = hear(), first = dial_port(port);
    meet();
    write_all(first, "a", 1);
    meet();
    write_all(first, "b", 1);
    meet();
    int second = dial_port(port);
    meet();
    write_all(second, "c", 1);
    meet();
    write_all(second, "d", 1);
    meet();
}
