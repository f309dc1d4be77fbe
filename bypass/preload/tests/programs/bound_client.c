/* pair: a client that binds its own address and port before it connects. */
#include "contract.h"

static void server(void) {
    int listening = listener(8);
    struct sockaddr_in peer;
    for (int i = 0; i < 2; i++) {
        socklen_t length = sizeof peer;
        int fd = accept(listening, (struct sockaddr *)&peer, &length);
        say("peer %s", inet_ntoa(peer.sin_addr));
        say("port as bound %d", ntohs(peer.sin_port) == hear());
        write_all(fd, "k", 1);
        char byte;
        result("end", read(fd, &byte, 1));
        close(fd);
    }
}

static void client(void) {
    int port = hear();
    char byte;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in own = ipv4("127.0.0.3", 0), name = ipv4("127.0.0.1", port);
    result("bind", bind(fd, (struct sockaddr *)&own, sizeof own));
    int bound = port_of(fd);
    tell(bound);
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    say("port is kept %d", port_of(fd) == bound);
    read_all(fd, &byte, 1);
    int second = socket(AF_INET, SOCK_STREAM, 0);
    own = ipv4("127.0.0.3", bound);
    result("the same port again", bind(second, (struct sockaddr *)&own, sizeof own));
    close(fd);
    own = ipv4("0.0.0.0", 0);
    result("bind any", bind(second, (struct sockaddr *)&own, sizeof own));
    tell(port_of(second));
    result("connect", connect(second, (struct sockaddr *)&name, sizeof name));
    socklen_t length = sizeof own;
    getsockname(second, (struct sockaddr *)&own, &length);
    say("address is chosen %s", inet_ntoa(own.sin_addr));
    read_all(second, &byte, 1);
}
