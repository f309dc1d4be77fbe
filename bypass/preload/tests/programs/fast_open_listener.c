/* pair: a listener that allows TCP_FASTOPEN serves clients that use it, and others. */
#include "contract.h"

static void server(void) {
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    int listening = socket(AF_INET, SOCK_STREAM, 0), length = 16, got = 0;
    socklen_t size = sizeof got;
    result("TCP_FASTOPEN", setsockopt(listening, SOL_TCP, TCP_FASTOPEN, &length, sizeof length));
    need(bind(listening, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    need(listen(listening, 8) == 0, "listen");
    result("getsockopt", getsockopt(listening, SOL_TCP, TCP_FASTOPEN, &got, &size));
    say("length %d", got);
    tell(port_of(listening));
    for (int i = 0; i < 3; i++) {
        char buffer[8] = "";
        int fd = accept(listening, NULL, NULL);
        read_all(fd, buffer, 4);
        say("read %.4s", buffer);
        write_all(fd, "back", 4);
        close(fd);
    }
    length = 0;
    result("off again", setsockopt(listening, SOL_TCP, TCP_FASTOPEN, &length, sizeof length));
}

static void client(void) {
    struct sockaddr_in name = ipv4("127.0.0.1", hear());
    for (int i = 0; i < 3; i++) {
        char buffer[8] = "";
        int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
        if (i == 0)
            result("sendto", sendto(fd, "ping", 4, MSG_FASTOPEN, (void *)&name, sizeof name));
        if (i == 1)
            result("TCP_FASTOPEN_CONNECT", setsockopt(fd, SOL_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof on));
        if (i > 0) {
            result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
            result("send", send(fd, "ping", 4, 0));
        }
        read_all(fd, buffer, 4);
        say("read %.4s", buffer);
        result("end", read(fd, buffer, 1));
        close(fd);
    }
}
