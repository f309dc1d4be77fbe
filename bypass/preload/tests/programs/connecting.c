/* pair: what a socket says of itself while it is being connected. */
#include "contract.h"

static void say_peer(const char *when, int fd) {
    struct sockaddr_in name = {0};
    socklen_t length = sizeof name;
    say("%s", when);
    result("  getpeername", getpeername(fd, (struct sockaddr *)&name, &length));
    length = sizeof name;
    result("  getsockname", getsockname(fd, (struct sockaddr *)&name, &length));
    say("  has an address %d, a port %d", name.sin_addr.s_addr != 0, name.sin_port != 0);
    say("  state %u", tcp_info(fd).tcpi_state);
    say_poll("  poll", fd, POLLIN | POLLOUT, 0);
}

/* A full queue: the second SYN is dropped until the first connection is accepted. */
static void server(void) {
    stay_on_the_kernel("server");
    int listening = listener(0);
    hear();
    need(accept(listening, NULL, NULL) >= 0, "accept");
    tell(0);
    need(accept(listening, NULL, NULL) >= 0, "accept");
    meet();
}

static void client(void) {
    int port = hear();
    dial_port(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    set_nonblocking(fd);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    say_peer("connecting", fd);
    result("connect again", connect(fd, (struct sockaddr *)&name, sizeof name));
    tell(0);
    hear();
    wait_for(fd, POLLOUT);
    say_peer("connected", fd);
    say("error %s", error_name(so_error(fd)));
    meet();
}
