/* pair: a bind that is refused leaves the socket unbound: it connects from a port of the kernel's choice, and
 * one that was bound is still so after its connection was dissolved. */
#include "contract.h"

static void server(void) {
    int listening = listener(4);
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        int fd = accept(listening, (struct sockaddr *)&peer, &length);
        outcome("accept", fd);
        say("its client's port is %s", ntohs(peer.sin_port) == hear() ? "the client's" : "another");
        close(fd);
        meet();
    }
}

static int port_after_connect(int fd, int port) {
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    int own = port_of(fd);
    tell(own);
    meet();
    return own;
}

static void client(void) {
    int port = hear();
    struct sockaddr_in foreign = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    result("bind to an address of no interface", bind(fd, (struct sockaddr *)&foreign, sizeof foreign));
    say("has a port %d", port_after_connect(fd, port) != 0);
    close(fd);

    struct sockaddr_in any = {.sin_family = AF_INET};
    fd = socket(AF_INET, SOCK_STREAM, 0);
    result("bind", bind(fd, (struct sockaddr *)&any, sizeof any));
    int bound = port_of(fd);
    say("the same port %d", port_after_connect(fd, port) == bound);
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    result("connect to nowhere", connect(fd, &nowhere, sizeof nowhere));
    say("the port is still there %d", port_of(fd) == bound);
    result("listen", listen(fd, 4));
    result("connect a listener", connect(fd, (struct sockaddr *)&foreign, sizeof foreign));
    close(fd);
}
