/* pair: connections that end by reset: linger 0, and closing with unread bytes. */
#include "contract.h"

static void reset_close(int fd) {
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    result("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    result("close", close(fd));
}

static void server(void) {
    int fd = serve_one();
    meet(); /* a reset that is earlier than connect's return fails connect */
    reset_close(fd);
    meet();
    fd = serve_one();
    write_all(fd, "queued", 6);
    meet();
    reset_close(fd);
    meet();
    fd = serve_one();
    meet();
    wait_for(fd, POLLIN);
    result("close with unread bytes", close(fd));
    meet();
    fd = serve_one();
    meet();
    reset_close(fd);
    meet();
    meet();
}

static void after_reset(const char *name, int fd) {
    char buffer[16];
    wait_for(fd, POLLHUP);
    say("%s", name);
    say_poll("poll", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    result("read", read(fd, buffer, sizeof buffer));
    result("read again", read(fd, buffer, sizeof buffer));
    result("write", send(fd, "x", 1, MSG_NOSIGNAL));
    say_poll("poll", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    result("getpeername", getpeername(fd, (struct sockaddr *)&peer, &length));
    result("shutdown", shutdown(fd, SHUT_RDWR));
    close(fd);
}

static void client(void) {
    int fd = dial();
    meet();
    meet();
    after_reset("linger 0", fd);
    fd = dial();
    meet();
    wait_for(fd, POLLIN);
    meet();
    after_reset("linger 0 with bytes on the way", fd);
    fd = dial();
    write_all(fd, "unread", 6);
    meet();
    meet();
    after_reset("closed with unread bytes", fd);
    fd = dial();
    meet();
    meet();
    wait_for(fd, POLLHUP);
    say("SO_ERROR first: %s", error_name(so_error(fd)));
    say("SO_ERROR then: %s", error_name(so_error(fd)));
    char byte;
    result("read", read(fd, &byte, 1));
    result("write", send(fd, "x", 1, MSG_NOSIGNAL));
    meet();
}
