/* solo: a set and a descriptor are members of one set with the same data: both report, each for itself. */
#define SOLO
#include "contract.h"

static void add(int set, int fd, unsigned events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    result("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
}

static int by_data(const void *left, const void *right) {
    const struct epoll_event *a = left, *b = right;
    return a->data.u64 < b->data.u64 ? -1 : a->data.u64 > b->data.u64;
}

static void look(const char *name, int set, int timeout_ms) {
    struct epoll_event found[8];
    int count = epoll_wait(set, found, 8, timeout_ms);
    result(name, count);
    if (count > 0)
        qsort(found, count, sizeof *found, by_data);
    for (int i = 0; i < count; i++)
        say("  %llu: %s", (unsigned long long)found[i].data.u64, events(found[i].events));
}

static void solo(void) {
    int outer = epoll_create1(0), inner = epoll_create1(0), other = epoll_create1(0);
    int beside = eventfd(0, EFD_NONBLOCK), within = eventfd(0, EFD_NONBLOCK);
    eventfd_t value;
    add(outer, inner, EPOLLIN, 0);
    add(outer, other, EPOLLIN | EPOLLONESHOT, 0);
    add(outer, beside, EPOLLIN, 0);
    add(inner, within, EPOLLIN, 5);
    look("nothing", outer, 0);
    eventfd_write(beside, 1);
    look("the one next to them", outer, 2000);
    eventfd_write(within, 1);
    look("and a set", outer, 2000);
    eventfd_read(beside, &value);
    look("the set", outer, 2000);
    eventfd_read(within, &value);
    look("nothing", outer, 20);
    add(other, within, EPOLLIN, 6);
    eventfd_write(within, 1);
    look("both sets", outer, 2000);
    look("one once only", outer, 2000);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 9};
    result("modify", epoll_ctl(outer, EPOLL_CTL_MOD, other, &event));
    look("with other data", outer, 2000);
    result("delete", epoll_ctl(outer, EPOLL_CTL_DEL, inner, NULL));
    result("delete again", epoll_ctl(outer, EPOLL_CTL_DEL, inner, NULL));
    look("the other", outer, 2000);
    close(other);
    look("nothing", outer, 20);
    add(outer, inner, EPOLLIN | EPOLLET, ~0ull);
    look("the edge", outer, 2000);
    look("nothing", outer, 20);
}
