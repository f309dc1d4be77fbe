/* pair: two listeners share a port; together they accept every connection. */
#include "contract.h"

#define CONNECTIONS 40

static int open_one(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), on = 1;
    result("SO_REUSEPORT", setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on));
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    result("bind", bind(fd, (struct sockaddr *)&name, sizeof name));
    result("listen", listen(fd, 64));
    return fd;
}

static void server(void) {
    int first = open_one(0), second = open_one(port_of(first)), accepted = 0;
    tell(port_of(first));
    struct pollfd both[] = {{first, POLLIN, 0}, {second, POLLIN, 0}};
    while (accepted < CONNECTIONS) {
        need(poll(both, 2, LONG_MS) > 0, "poll");
        for (int i = 0; i < 2; i++) {
            int fd = accept(both[i].fd, NULL, NULL);
            if (fd >= 0) {
                accepted++;
                write_all(fd, "k", 1);
                close(fd);
            }
        }
    }
    say("accepted %d", accepted);
}

static void client(void) {
    int port = hear(), served = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = dial_port(port);
        char letter;
        read_all(fd, &letter, 1);
        served += letter == 'k';
        close(fd);
    }
    say("served %d", served);
}
