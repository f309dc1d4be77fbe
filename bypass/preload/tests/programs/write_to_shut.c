/* pair: writes to a peer that has shut both directions down and keeps its socket. */
#include "contract.h"

#define KIB 1024
static char block[256 * KIB];

/* What a socket says of itself after a reset. */
static void say_over(const char *name, int fd) {
    struct sockaddr_in peer;
    socklen_t length = sizeof peer;
    say_poll(name, fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    result("  read", recv(fd, block, 16, MSG_DONTWAIT));
    result("  read again", recv(fd, block, 16, MSG_DONTWAIT));
    result("  write", send(fd, "x", 1, MSG_NOSIGNAL));
    result("  getpeername", getpeername(fd, (struct sockaddr *)&peer, &length));
    result("  shutdown", shutdown(fd, SHUT_WR));
    say("  state %d", tcp_info(fd).tcpi_state);
}

/* In one call, and in two with the reading direction first. */
static void server(void) {
    int listening = listener(16);
    for (int i = 0; i < 3; i++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        if (i == 1)
            result("shutdown read", shutdown(fd, SHUT_RD));
        result("shutdown", shutdown(fd, i == 1 ? SHUT_WR : SHUT_RDWR));
        tell(0);
        if (i < 2) {
            meet();
            say_over("reset", fd);
        }
        meet();
        close(fd);
    }
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < 3; i++) {
        int fd = dial_port(port);
        hear();
        wait_for(fd, POLLIN);
        result("read the end", read(fd, block, 1));
        if (i < 2) {
            result("write", send(fd, "hello", 5, MSG_NOSIGNAL));
            wait_for(fd, POLLHUP);
            meet();
            say_over("after it", fd);
        }
        meet();
        close(fd);
    }
}
