/* pair: a client that libc has bound to one of root's ports is known by it. */
#include "contract.h"

/* Without root's rights every run is without. */
static int may_bind(void) { return geteuid() == 0; }

static void server(void) {
    int listening = listener(4);
    struct sockaddr_in peer = {0};
    socklen_t length = sizeof peer;
    int fd = accept(listening, (struct sockaddr *)&peer, &length);
    need(fd >= 0, "accept");
    int port = ntohs(peer.sin_port);
    say("one of root's ports %d", port < IPPORT_RESERVED);
    say("the same that the client says %d", port == hear());
}

static void client(void) {
    struct sockaddr_in name = ipv4("127.0.0.1", hear());
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (may_bind())
        result("bindresvport", bindresvport(fd, NULL));
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    tell(port_of(fd));
    if (may_bind())
        result("again", bindresvport(fd, NULL));
}
