/* pair: a listener that does not accept lets only some clients in: no more than a few times its
 * backlog. */
#include "contract.h"

#define CLIENTS 120

static void server(void) {
    int backlogs[] = {0, 5};
    for (int i = 0; i < 2; i++) {
        int listening = listener(backlogs[i]);
        hear();
        close(listening);
    }
}

static void client(void) {
    int backlogs[] = {0, 5};
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in name = ipv4("127.0.0.1", hear());
        struct pollfd clients[CLIENTS];
        for (int n = 0; n < CLIENTS; n++) {
            clients[n] = (struct pollfd){socket(AF_INET, SOCK_STREAM, 0), POLLOUT, 0};
            set_nonblocking(clients[n].fd);
            connect(clients[n].fd, (struct sockaddr *)&name, sizeof name);
        }
        /* Until one is in; the others have a moment more. */
        need(poll(clients, CLIENTS, LONG_MS) > 0, "one is let in");
        usleep(100000);
        int in = 0;
        need(poll(clients, CLIENTS, 0) >= 0, "poll");
        for (int n = 0; n < CLIENTS; n++)
            in += (clients[n].revents & (POLLOUT | POLLHUP)) == POLLOUT;
        say("backlog %d: one was let in %d, not too many %d", backlogs[i], in > 0,
            in <= 4 * (backlogs[i] + 1));
        tell(0);
        for (int n = 0; n < CLIENTS; n++)
            close(clients[n].fd);
    }
}
