/* pair: SO_OOBINLINE on a connection and on a listener: urgent bytes are read in their place. */
#include "contract.h"

static void in_line(int fd) {
    int on = 1;
    result("SO_OOBINLINE", setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
}

static void say_option(int fd) {
    int on = -1;
    socklen_t length = sizeof on;
    need(getsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, &length) == 0, "getsockopt");
    say("in line %d", on);
}

static void say_read(int fd) {
    char buffer[8] = "";
    int mark = -1, left = -1;
    need(ioctl(fd, SIOCATMARK, &mark) == 0 && ioctl(fd, FIONREAD, &left) == 0, "ioctl");
    say("at mark %d, readable %d", mark, left);
    result("read", recv(fd, buffer, sizeof buffer - 1, MSG_DONTWAIT));
    say("%s", buffer);
}

static void look(int fd) {
    char buffer[8] = "";
    say_option(fd);
    tell(0);
    hear();
    wait_for(fd, POLLPRI);
    say_poll("poll", fd, POLLIN | POLLPRI, 0);
    result("MSG_OOB", recv(fd, buffer, 1, MSG_OOB));
    say_read(fd);
    say_poll("poll", fd, POLLIN | POLLPRI, 0);
    say_read(fd);
    say_poll("poll", fd, POLLIN | POLLPRI, 0);
    say_read(fd);
    close(fd);
}

static void server(void) {
    int fd = serve_one();
    in_line(fd);
    look(fd);
    int listening = listener_on("127.0.0.1", 4);
    in_line(listening);
    tell(port_of(listening));
    look(accept(listening, NULL, NULL));
}

static void send_around(int fd) {
    hear();
    write_all(fd, "ab", 2);
    result("send urgent", send(fd, "!", 1, MSG_OOB));
    write_all(fd, "cd", 2);
    tell(0);
    char byte;
    result("end", read(fd, &byte, 1));
    close(fd);
}

static void client(void) {
    send_around(dial());
    send_around(dial());
}
