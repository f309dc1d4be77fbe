/* pair: a set that is a one-shot member of another by a number that is closed, while a second number keeps it. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    while (hear())
        write_all(fd, "x", 1);
    close(fd);
}

static int inner, outer, fd;

static void set(int command, int data) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = data};
    result(command == EPOLL_CTL_ADD ? "add" : "arm", epoll_ctl(outer, command, inner, &event));
}

/* A byte comes and is read without a look at the sets: no event is reported, and the one-shot is not spent. */
static void in_vain(void) {
    struct epoll_event event;
    char byte;
    tell(1);
    wait_for(fd, POLLIN);
    read_all(fd, &byte, 1);
    result("nothing reported", epoll_wait(outer, &event, 1, 0));
}

static void told(void) {
    struct epoll_event event = {0};
    char byte;
    tell(1);
    result("told", epoll_wait(outer, &event, 1, LONG_MS));
    say("of %d", event.data.u32);
    result("reported again", epoll_wait(outer, &event, 1, 0));
    read_all(fd, &byte, 1);
}

static void client(void) {
    struct epoll_event event = {.events = EPOLLIN};
    fd = dial();
    inner = epoll_create1(0);
    outer = epoll_create1(0);
    result("socket", epoll_ctl(inner, EPOLL_CTL_ADD, fd, &event));
    set(EPOLL_CTL_ADD, 1);
    int other = dup(inner);
    close(inner);
    for (int i = 0; i < 3; i++)
        in_vain();
    told();
    /* The number means the set again. */
    need(dup2(other, inner) == inner, "dup2");
    set(EPOLL_CTL_MOD, 2);
    in_vain();
    told();
    set(EPOLL_CTL_MOD, 3);
    close(inner);
    in_vain();
    /* Another set at the number is another member. */
    int last = epoll_create1(0);
    need(last == inner, "the number");
    set(EPOLL_CTL_ADD, 4);
    in_vain();
    told();
    close(other);
    tell(0);
    result("after its end", epoll_wait(outer, &event, 1, 100));
}
