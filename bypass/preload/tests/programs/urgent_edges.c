/* pair: urgent bytes: alone, at the end of a message, peeked, never fetched; select and epoll. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    hear();
    result("alone", send(fd, "!", 1, MSG_OOB));
    hear();
    result("at the end of a message", send(fd, "abc", 3, MSG_OOB));
    hear();
    send(fd, "abc", 3, MSG_OOB);
    write_all(fd, "de", 2);
    hear();
    send(fd, "?", 1, MSG_OOB);
    hear();
    write_all(fd, "rest", 4);
    hear();
}

static int exceptional(int fd) {
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval none = {0};
    return select(fd + 1, NULL, NULL, &set, &none);
}

static void client(void) {
    int fd = dial(), set = epoll_create1(0), there;
    char text[16] = "";
    struct epoll_event event = {.events = EPOLLPRI};
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    set_nonblocking(fd);
    tell(0);
    result("epoll_wait", epoll_wait(set, &event, 1, LONG_MS));
    say("events %s select %d", events(event.events), exceptional(fd));
    say_poll("poll", fd, POLLIN | POLLPRI, 0);
    result("peek", recv(fd, text, 1, MSG_OOB | MSG_PEEK));
    result("fetch", recv(fd, text, 8, MSG_OOB));
    say("%s select %d", text, exceptional(fd));
    tell(0);
    wait_for(fd, POLLPRI);
    need(ioctl(fd, FIONREAD, &there) == 0, "FIONREAD");
    memset(text, 0, sizeof text);
    result("read", read(fd, text, 16));
    say("%s, %d", text, there);
    result("fetch", recv(fd, text, 1, MSG_OOB));
    say("%.1s", text);
    result("read", read(fd, text, 16));
    tell(0);
    wait_for(fd, POLLPRI);
    /* A read stops at the urgent byte, and the next one begins behind it: so does one that only looks. */
    for (int i = 0; i < 2; i++) {
        wait_for(fd, POLLIN);
        result("how much", recv(fd, NULL, 16, MSG_PEEK | MSG_TRUNC));
        result("peek", recv(fd, text, 16, MSG_PEEK));
        say("%.2s", text);
        result("read", read(fd, text, 16));
        say("%.2s", text);
    }
    result("peek at nothing", recv(fd, text, 16, MSG_PEEK));
    tell(0);
    wait_for(fd, POLLPRI);
    result("peek at the urgent byte alone", recv(fd, text, 1, MSG_PEEK));
    tell(0);
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    result("never fetched", recv(fd, text, 4, MSG_WAITALL));
    say("%.4s", text);
    result("too late", recv(fd, text, 1, MSG_OOB));
    tell(0);
}
