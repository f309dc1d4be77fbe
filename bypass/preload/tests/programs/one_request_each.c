/* pair: a new connection for each of 300 requests, closed by the server. */
#include "contract.h"

#define REQUESTS 300

static void server(void) {
    int listening = listener(128);
    for (int i = 0; i < REQUESTS; i++) {
        int fd = accept(listening, NULL, NULL), number;
        read_all(fd, &number, sizeof number);
        number *= 2;
        write_all(fd, &number, sizeof number);
        close(fd);
    }
    say("served");
}

static void client(void) {
    int port = hear(), right = 0, ended = 0;
    for (int i = 0; i < REQUESTS; i++) {
        int fd = dial_port(port), number = i;
        write_all(fd, &number, sizeof number);
        read_all(fd, &number, sizeof number);
        right += number == 2 * i;
        ended += read(fd, &number, 1) == 0;
        close(fd);
    }
    say("right %d ended %d", right, ended);
}
