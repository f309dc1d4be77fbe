/* pair: SO_SNDBUF of a connection that the program has given no size, and of ones that it has; a write of three times
 * as much does not fit. */
#include "contract.h"

static int size_of(int fd, int option) {
    int bytes = -1;
    socklen_t length = sizeof bytes;
    need(getsockopt(fd, SOL_SOCKET, option, &bytes, &length) == 0, "a size");
    return bytes;
}

static void say_sizes(const char *name, int fd) {
    /* The kernel begins with room for ten segments of what the path carries. */
    say("%s: a large send buffer %d, receive buffer %d", name, size_of(fd, SO_SNDBUF) > 50000,
        size_of(fd, SO_RCVBUF) > 50000);
}

static void write_too_much(int fd) {
    size_t size = 3 * (size_t)size_of(fd, SO_SNDBUF);
    char *bytes = calloc(1, size);
    need(bytes != NULL, "memory");
    ssize_t put = send(fd, bytes, size, MSG_DONTWAIT);
    say("a part of it is taken %d", put > 0 && (size_t)put < size);
    free(bytes);
}

static void server(void) {
    int listening = listener(4);
    int fd = accept(listening, NULL, NULL);
    say_sizes("accepted", fd);
    meet();
    meet();
    close(fd);
    set_int(listening, SOL_SOCKET, SO_SNDBUF, 20000);
    meet();
    fd = accept(listening, NULL, NULL);
    say("from a listener with a size: %d", size_of(fd, SO_SNDBUF));
    meet();
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    say_sizes("connected", fd);
    meet();
    write_too_much(fd);
    meet();
    set_int(fd, SOL_SOCKET, SO_SNDBUF, 30000);
    say("given a size: %d", size_of(fd, SO_SNDBUF));
    close(fd);
    meet();
    fd = socket(AF_INET, SOCK_STREAM, 0);
    set_int(fd, SOL_SOCKET, SO_SNDBUF, 40000);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    say("given one before: %d", size_of(fd, SO_SNDBUF));
    meet();
}
