/* pair: a non-blocking listener, its readiness, and the order of accepted connections. */
#include "contract.h"

static void server(void) {
    int listening = listener_on("127.0.0.1", 16);
    set_nonblocking(listening);
    result("accept before", accept(listening, NULL, NULL));
    say_poll("before", listening, POLLIN | POLLOUT, 0);
    tell(port_of(listening));
    wait_for(listening, POLLIN);
    say_poll("with one waiting", listening, POLLIN | POLLOUT, 0);
    hear();
    for (int i = 0; i < 5; i++) {
        wait_for(listening, POLLIN);
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        say("inherited nonblock %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
        char letter;
        read_all(fd, &letter, 1);
        say("%d is %c", i, letter);
        close(fd);
    }
    result("accept after", accept(listening, NULL, NULL));
    say_poll("after", listening, POLLIN | POLLOUT, 0);
    meet();
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < 5; i++) {
        char letter = 'a' + i;
        write_all(dial_port(port), &letter, 1);
    }
    tell(0);
    meet();
}
