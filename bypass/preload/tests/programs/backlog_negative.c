/* pair: a negative backlog is a very large one. */
#include "contract.h"

#define WAITING 12

static void server(void) {
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    need(bind(listening, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    result("listen", listen(listening, -1));
    tell(port_of(listening));
    meet();
    int accepted = 0;
    for (int i = 0; i < WAITING; i++)
        accepted += accept(listening, NULL, NULL) >= 0;
    say("accepted %d", accepted);
}

static void client(void) {
    int port = hear(), connected = 0;
    for (int i = 0; i < WAITING; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in name = ipv4("127.0.0.1", port);
        struct timeval patience = {LONG_S, 0};
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        connected += connect(fd, (struct sockaddr *)&name, sizeof name) == 0;
    }
    say("connected without accept %d", connected);
    meet();
}
