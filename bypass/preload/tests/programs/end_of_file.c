/* pair: what is read and written after the peer has closed. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    write_all(fd, "0123456789", 10);
    close(fd);
    meet();
    fd = serve_one();
    meet();
    close(fd);
    meet();
    meet();
}

static void client(void) {
    char buffer[64];
    int fd = dial();
    meet();
    wait_for(fd, POLLRDHUP);
    say_poll("data and end", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    result("read 4", read(fd, buffer, 4));
    result("read rest", read(fd, buffer, sizeof buffer));
    result("read end", read(fd, buffer, sizeof buffer));
    result("read end again", recv(fd, buffer, sizeof buffer, 0));
    result("peek end", recv(fd, buffer, sizeof buffer, MSG_PEEK));
    result("read 0 bytes", read(fd, buffer, 0));
    say_poll("at the end", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    close(fd);

    fd = dial();
    meet();
    meet();
    wait_for(fd, POLLRDHUP);
    result("first write to a closed peer", send(fd, "x", 1, MSG_NOSIGNAL));
    wait_for(fd, POLLHUP | POLLERR);
    say_poll("after it", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    result("second write", send(fd, "x", 1, MSG_NOSIGNAL));
    result("third write", send(fd, "x", 1, MSG_NOSIGNAL));
    result("read", read(fd, buffer, 1));
    say("SO_ERROR %s", error_name(so_error(fd)));
    meet();
}
