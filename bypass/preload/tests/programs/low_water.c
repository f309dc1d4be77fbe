/* pair: SO_RCVLOWAT: from how many bytes on a connection is readable, and how many end a read. */
#include "contract.h"

/* Between hosts bytes may come after the word that they were written. */
static void until_there_are(int fd, int wanted) {
    double until = now_s() + LONG_S;
    for (int unread = 0; unread < wanted; usleep(1000))
        need(ioctl(fd, FIONREAD, &unread) == 0 && now_s() < until, "bytes");
}

static void server(void) {
    int fd = serve_one(), low = 4, set = epoll_create1(0);
    char bytes[64];
    need(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low) == 0, "SO_RCVLOWAT");
    struct epoll_event event = {.events = EPOLLIN};
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    meet();
    meet();
    until_there_are(fd, 2);
    say_poll("two bytes of four", fd, POLLIN, 20);
    result("epoll", epoll_wait(set, &event, 1, 20));
    result("a read that does not wait", recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
    meet();
    say_poll("four bytes", fd, POLLIN, LONG_MS);
    result("epoll", epoll_wait(set, &event, 1, LONG_MS));
    result("read", read(fd, bytes, sizeof bytes));
    meet();
    result("a read that waits for four at once", read(fd, bytes, sizeof bytes));
    meet();
    say_poll("one byte and the end", fd, POLLIN, LONG_MS);
    result("read", read(fd, bytes, sizeof bytes));
    result("end", read(fd, bytes, sizeof bytes));
    low = 1;
    need(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low) == 0, "SO_RCVLOWAT");
    say_poll("end", fd, POLLIN, LONG_MS);
}

static void client(void) {
    int fd = dial();
    meet();
    write_all(fd, "ab", 2);
    meet();
    meet();
    write_all(fd, "cdef", 4);
    meet();
    usleep(30000);
    write_all(fd, "ghij", 4);
    meet();
    write_all(fd, "m", 1);
    close(fd);
}
