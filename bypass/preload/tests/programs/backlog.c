/* solo: listening on fresh, bound and connected sockets, and connections that wait to be accepted. */
#define SOLO
#include "contract.h"

static void solo(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    result("accept before listen", accept(fd, NULL, NULL));
    result("listen without bind", listen(fd, 0));
    say("a port was chosen %d", port_of(fd) > 0);
    result("listen again", listen(fd, 5));
    struct sockaddr_in name = ipv4("127.0.0.1", port_of(fd));
    result("bind while listening", bind(fd, (struct sockaddr *)&name, sizeof name));
    result("connect a listener", connect(fd, (struct sockaddr *)&name, sizeof name));
    char byte;
    result("read a listener", read(fd, &byte, 1));
    result("write a listener", send(fd, "x", 1, MSG_NOSIGNAL));
    say_poll("idle listener", fd, POLLIN | POLLOUT | POLLRDHUP, 0);

    int clients[4];
    for (int i = 0; i < 4; i++) {
        clients[i] = dial_port(port_of(fd));
        byte = 'a' + i;
        write_all(clients[i], &byte, 1);
    }
    close(clients[1]);
    for (int i = 0; i < 4; i++) {
        int peer = accept(fd, NULL, NULL);
        result("read before the end", read(peer, &byte, 1));
        say("%c", byte);
        if (i == 1)
            result("closed before it was accepted", read(peer, &byte, 1));
        result("listen on a connected one", listen(peer, 4));
        result("accept on a connected one", accept(peer, NULL, NULL));
        close(peer);
    }
    int waiting = dial_port(port_of(fd));
    close(fd);
    wait_for(waiting, POLLHUP);
    result("the listener closed before accepting", read(waiting, &byte, 1));

    fd = listener_on("127.0.0.1", 4);
    waiting = dial_port(port_of(fd));
    struct linger linger = {1, 0};
    setsockopt(waiting, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(waiting);
    int peer = accept(fd, NULL, NULL);
    outcome("accept of a reset connection", peer);
    result("read it", read(peer, &byte, 1));
    result("shutdown of a listener", shutdown(fd, SHUT_RD));
    say_poll("a listener after shutdown", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    result("accept after shutdown", accept(fd, NULL, NULL));
}
