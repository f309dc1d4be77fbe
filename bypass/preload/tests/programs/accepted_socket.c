/* pair: what an accepted socket has from its listener, and its client's address when that is gone. */
#include "contract.h"

static void say_time(const char *name, int fd, int option) {
    struct timeval time = {0};
    socklen_t length = sizeof time;
    result(name, getsockopt(fd, SOL_SOCKET, option, &time, &length));
    say("%ld.%06ld", (long)time.tv_sec, (long)time.tv_usec);
}

static void server(void) {
    int listening = listener_on("127.0.0.1", 16);
    struct timeval half = {0, 48000}, two = {2, 0};
    setsockopt(listening, SOL_SOCKET, SO_RCVTIMEO, &half, sizeof half);
    setsockopt(listening, SOL_SOCKET, SO_SNDTIMEO, &two, sizeof two);
    tell(port_of(listening));
    wait_for(listening, POLLIN);
    int fd = accept(listening, NULL, NULL);
    outcome("accept", fd);
    say_time("receive timeout", fd, SO_RCVTIMEO);
    say_time("send timeout", fd, SO_SNDTIMEO);
    char byte;
    result("read", read(fd, &byte, 1));
    meet();
    meet();
    struct sockaddr_in name;
    memset(&name, 0x55, sizeof name);
    socklen_t length = sizeof name;
    fd = accept(listening, (struct sockaddr *)&name, &length);
    outcome("accept of a reset connection", fd);
    say("family %d, length %d, address %s", name.sin_family, (int)length, inet_ntoa(name.sin_addr));
    say("the client's port %d", ntohs(name.sin_port) == hear());
    result("read", read(fd, &byte, 1));
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    meet();
    int other = dial_port(port);
    struct linger now = {1, 0};
    setsockopt(other, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    int own = port_of(other);
    close(other);
    meet();
    tell(own);
    close(fd);
}
