/* pair: blocking connect and accept, names of both ends, flags of accepted sockets. */
#include "contract.h"

static void server(void) {
    int listening = listener(16);
    struct sockaddr_in peer, own;
    socklen_t length = sizeof peer;
    int fd = accept(listening, (struct sockaddr *)&peer, &length);
    outcome("accept", fd);
    say("peer length %u family %d address %s", length, peer.sin_family == AF_INET,
        inet_ntoa(peer.sin_addr));
    tell(ntohs(peer.sin_port));
    length = sizeof own;
    result("getsockname", getsockname(fd, (struct sockaddr *)&own, &length));
    say("own port is the listener's: %d", ntohs(own.sin_port) == port_of(listening));
    say("nonblock %d cloexec %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0, fcntl(fd, F_GETFD));
    say("access mode %d", (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);

    int second = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    outcome("accept4", second);
    say("nonblock %d cloexec %d", (fcntl(second, F_GETFL) & O_NONBLOCK) != 0,
        fcntl(second, F_GETFD));
    result("accept4 with a wrong flag", accept4(listening, NULL, NULL, 1 << 30));

    char small[4] = "xxx";
    length = 2;
    int third = accept(listening, (struct sockaddr *)small, &length);
    outcome("accept with little room", third);
    say("full length %u, two bytes written %d", length, small[2] == 'x');
    meet();
}

static void client(void) {
    int port = hear();
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", port), own, peer;
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    socklen_t length = sizeof own;
    result("getsockname", getsockname(fd, (struct sockaddr *)&own, &length));
    say("own address %s length %u", inet_ntoa(own.sin_addr), length);
    say("the server sees my port: %d", hear() == ntohs(own.sin_port));
    length = sizeof peer;
    result("getpeername", getpeername(fd, (struct sockaddr *)&peer, &length));
    say("peer %s, its port %d", inet_ntoa(peer.sin_addr), ntohs(peer.sin_port) == port);
    length = 3;
    result("getpeername with little room", getpeername(fd, (struct sockaddr *)&peer, &length));
    say("full length %u", length);
    result("connect again", connect(fd, (struct sockaddr *)&name, sizeof name));
    dial_port(port);
    dial_port(port);
    meet();
}
