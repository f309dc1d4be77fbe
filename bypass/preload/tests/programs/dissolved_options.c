/* pair: what a socket keeps, and what it forgets, when connect to AF_UNSPEC dissolves its connection. */
#include "contract.h"

static void dissolve(int fd) {
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    need(connect(fd, &nowhere, sizeof nowhere) == 0, "dissolve");
}

static void connect_again(int fd, int port) {
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
}

static void fetch(int fd) {
    char byte;
    say_poll("urgent byte", fd, POLLPRI, LONG_MS);
    result("fetched", recv(fd, &byte, 1, MSG_OOB));
}

static void server(void) {
    int listening = listener(4), fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = accept(listening, NULL, NULL);
        need(fds[i] >= 0, "accept");
        if (i < 2)
            need(send(fds[i], "!", 1, MSG_OOB) == 1, "send");
    }
    char bytes[8];
    result("read", recv(fds[3], bytes, 4, MSG_WAITALL));
    result("read the end", read(fds[3], bytes, 8));
    meet();
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    fetch(fd);
    dissolve(fd);
    connect_again(fd, port);
    fetch(fd);
    dissolve(fd);
    struct linger linger = {1, 7};
    need(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0, "SO_LINGER");
    connect_again(fd, port);
    dissolve(fd);
    socklen_t length = sizeof linger;
    need(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length) == 0, "SO_LINGER");
    say("lingers %d, %d s", linger.l_onoff, linger.l_linger);
    connect_again(fd, port);
    write_all(fd, "data", 4);
    close(fd);
    meet();
}
