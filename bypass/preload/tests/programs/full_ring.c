/* pair: writing until the peer's side is full, then space again: poll, epoll by level and by edge. */
#include "contract.h"

static int writable(int fd) {
    struct pollfd one = {fd, POLLOUT, 0};
    return poll(&one, 1, 0) == 1 && (one.revents & POLLOUT) != 0;
}

static long push(int fd, size_t length) {
    static char block[30000];
    long total = 0;
    ssize_t put;
    while ((put = send(fd, block, length, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
        total += put;
    need(errno == EAGAIN, "send");
    return total;
}

/* The last bytes may fit one at a time, and the kernel moves bytes to the other side, and notices that
 * they came, a little after it has reported a full buffer: full is what stays full. */
static long fill_up(int fd) {
    long total = 0;
    for (int looks = 0; looks < 5;) {
        long more = push(fd, 30000) + push(fd, 1);
        total += more;
        looks = more ? 0 : looks + 1;
        usleep(20000);
    }
    return total;
}

static void drain(int fd, long total) {
    static char block[50000];
    while (total > 0) {
        ssize_t got = read(fd, block, sizeof block);
        need(got > 0, "drain");
        total -= got;
    }
    char byte;
    result("nothing is left over", recv(fd, &byte, 1, MSG_DONTWAIT));
}

static void server(void) {
    int fd = serve_one();
    for (int i = 0; i < 2; i++) {
        drain(fd, hear());
        meet();
    }
}

static void client(void) {
    int fd = dial(), epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLOUT | EPOLLET};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    result("edge at first", epoll_wait(epoll, &event, 1, LONG_MS));
    say("writable %d", writable(fd));
    long total = fill_up(fd);
    say("some fitted %d, writable %d", total > 1000, writable(fd));
    /* The kernel may have found room for some more meanwhile; what follows is EAGAIN. */
    total += push(fd, 1);
    result("no edge while full", epoll_wait(epoll, &event, 1, 20));
    tell((int)total);
    result("an edge when there is space", epoll_wait(epoll, &event, 1, LONG_MS));
    say("%s", events(event.events));
    meet();
    wait_for(fd, POLLOUT);
    say("writable %d", writable(fd));
    event.events = EPOLLOUT;
    epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event);
    total = fill_up(fd);
    result("level: full", epoll_wait(epoll, &event, 1, 20));
    tell((int)total);
    result("level: space", epoll_wait(epoll, &event, 1, LONG_MS));
    meet();
    result("level: still", epoll_wait(epoll, &event, 1, LONG_MS));
}
