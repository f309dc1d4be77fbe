/* pair: a client that is bound to an address alone, as proxies do, gets a port as it connects. */
#include "contract.h"

static void server(void) {
    int listening = listener(4);
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in peer;
        socklen_t length = sizeof peer;
        int fd = accept(listening, (struct sockaddr *)&peer, &length);
        say("accepted %d from %s, with a port %d", fd >= 0, inet_ntoa(peer.sin_addr),
            peer.sin_port != 0);
        tell(ntohs(peer.sin_port));
        close(fd);
    }
}

static void client(void) {
    int port = hear();
    const char *addresses[] = {"127.0.0.1", "127.0.0.2"};
    for (int i = 0; i < 2; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        set_int(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1);
        struct sockaddr_in own = ipv4(addresses[i], 0), name = ipv4("127.0.0.1", port);
        result("bind", bind(fd, (struct sockaddr *)&own, sizeof own));
        say("a port before %d", port_of(fd) != 0);
        result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
        socklen_t length = sizeof own;
        getsockname(fd, (struct sockaddr *)&own, &length);
        say("%s, the one that the server sees %d", inet_ntoa(own.sin_addr),
            ntohs(own.sin_port) == hear());
        close(fd);
    }
}
