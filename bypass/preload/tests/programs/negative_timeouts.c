/* pair: a negative SO_RCVTIMEO or SO_SNDTIMEO is over at once, on every kind of socket. */
#include "contract.h"

static void set_negative(int fd, int name) {
    struct timeval negative = {.tv_sec = -3, .tv_usec = 500000};
    result("setsockopt", setsockopt(fd, SOL_SOCKET, name, &negative, sizeof negative));
    struct timeval now = {.tv_sec = -7, .tv_usec = -7};
    socklen_t length = sizeof now;
    result("getsockopt", getsockopt(fd, SOL_SOCKET, name, &now, &length));
    say("is %ld %ld", (long)now.tv_sec, (long)now.tv_usec);
}

static void fill_up(int fd) {
    static char piece[65536];
    ssize_t put;
    while ((put = write(fd, piece, sizeof piece)) > 0)
        ;
    result("write", put);
}

static void of_a_connection(int fd) {
    char letter = 'x';
    set_negative(fd, SO_RCVTIMEO);
    result("recv", recv(fd, &letter, 1, 0));
    result("recv of all", recv(fd, &letter, 1, MSG_WAITALL));
    result("read", read(fd, &letter, 1));
    set_negative(fd, SO_SNDTIMEO);
    fill_up(fd);
    struct timeval soon = {.tv_usec = 20000};
    need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0, "setsockopt");
    result("recv with a time again", recv(fd, &letter, 1, 0));
}

static void server(void) {
    int listening = listener_on("127.0.0.1", 16);
    set_negative(listening, SO_RCVTIMEO);
    tell(port_of(listening));
    meet();
    wait_for(listening, POLLIN);
    int fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    result("accept", accept(listening, NULL, NULL));
    char letter;
    result("an accepted one has it too: recv", recv(fd, &letter, 1, 0));
    meet();
    of_a_connection(fd);
    meet();
    meet();
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    meet();
    meet();
    meet();
    close(fd);
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    set_negative(fresh, SO_SNDTIMEO);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    result("connect", connect(fresh, (struct sockaddr *)&name, sizeof name));
    wait_for(fresh, POLLOUT);
    result("connect again", connect(fresh, (struct sockaddr *)&name, sizeof name));
    meet();
}
