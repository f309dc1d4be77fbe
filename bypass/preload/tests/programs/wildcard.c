/* pair: a listener on any address; each connection has the address that was dialled. */
#include "contract.h"

static void server(void) {
    int listening = listener_on("0.0.0.0", 8);
    tell(port_of(listening));
    for (int i = 0; i < 3; i++) {
        struct sockaddr_in own, peer;
        socklen_t length = sizeof peer;
        int fd = accept(listening, (struct sockaddr *)&peer, &length);
        length = sizeof own;
        getsockname(fd, (struct sockaddr *)&own, &length);
        say("own %s", inet_ntoa(own.sin_addr));
        say("peer %s", inet_ntoa(peer.sin_addr));
        tell(ntohs(peer.sin_port));
        write_all(fd, "k", 1);
        close(fd);
    }
}

static void use(int port, const char *to, const char *from) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name;
    if (from) {
        name = ipv4(from, 0);
        result("bind", bind(fd, (struct sockaddr *)&name, sizeof name));
    }
    name = ipv4(to, port);
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    socklen_t length = sizeof name;
    getsockname(fd, (struct sockaddr *)&name, &length);
    say("own %s, the port that the peer sees %d", inet_ntoa(name.sin_addr),
        ntohs(name.sin_port) == hear());
    char byte;
    read_all(fd, &byte, 1);
    result("end", read(fd, &byte, 1));
    close(fd);
}

static void client(void) {
    int port = hear();
    use(port, "127.0.0.1", NULL);
    use(port, "127.0.0.5", NULL);
    use(port, "127.0.0.1", "127.0.0.9");
}
