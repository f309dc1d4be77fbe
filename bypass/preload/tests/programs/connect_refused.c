/* solo: connecting where no socket listens, blocking and not, and after a listener is gone. */
#define SOLO
#include "contract.h"

static void refused(const char *what, int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    say("%s", what);
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    result("write after it", send(fd, "x", 1, MSG_NOSIGNAL));
    char byte;
    result("read after it", read(fd, &byte, 1));
    say("SO_ERROR %s", error_name(so_error(fd)));
    close(fd);

    fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    result("non-blocking connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    wait_for(fd, POLLOUT);
    say_poll("after it", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    say("SO_ERROR %s", error_name(so_error(fd)));
    say("SO_ERROR again %s", error_name(so_error(fd)));
    close(fd);
}

static void solo(void) {
    int bound = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    result("bind", bind(bound, (struct sockaddr *)&name, sizeof name));
    int port = port_of(bound);
    refused("bound, not listening", port);
    result("listen", listen(bound, 4));
    int fd = dial_port(port);
    outcome("connect while it listens", fd);
    close(fd);
    close(bound);
    refused("listener closed", port);
}
