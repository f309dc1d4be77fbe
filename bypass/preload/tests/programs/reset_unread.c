/* pair: a reset behind more bytes than are read: it is reported at once, to readers behind the bytes. */
#include "contract.h"

#define UNREAD (64 * 1024)
#define ALL (UNREAD + 16 * 1024)

static void server(void) {
    for (int round = 0; round < 2; round++) {
        static unsigned char bytes[ALL];
        int fd = serve_one();
        fill(bytes, ALL, 0);
        write_all(fd, bytes, ALL);
        meet();
        struct linger linger = {.l_onoff = 1, .l_linger = 0};
        result("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
        result("close", close(fd));
    }
}

/* A connection that is reset while at least so many bytes lie unread. */
static int reset_one(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    set_int(fd, SOL_SOCKET, SO_RCVBUF, 1 << 20);
    struct sockaddr_in name = ipv4("127.0.0.1", hear());
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    int unread = 0;
    while (unread < UNREAD) {
        usleep(1000);
        need(ioctl(fd, FIONREAD, &unread) == 0, "FIONREAD");
    }
    meet();
    wait_for(fd, POLLHUP);
    return fd;
}

static void read_to_the_end(int fd) {
    static unsigned char bytes[ALL + 1], expected[ALL];
    long count = 0, more;
    fill(expected, ALL, 0);
    while ((more = read(fd, bytes + count, ALL + 1 - count)) > 0)
        count += more;
    result("at last", more);
    /* Bytes that were on their way when the reset came may be lost. */
    say("all before: %s", count >= UNREAD && count <= ALL ? "yes" : "no");
    say("the same bytes: %s", memcmp(bytes, expected, count) == 0 ? "yes" : "no");
}

static void client(void) {
    int fd = reset_one();
    read_to_the_end(fd);
    result("send", send(fd, "x", 1, MSG_NOSIGNAL));
    close(fd);
    fd = reset_one();
    result("send first", send(fd, "x", 1, MSG_NOSIGNAL));
    result("send again", send(fd, "x", 1, MSG_NOSIGNAL));
    read_to_the_end(fd);
    close(fd);
}
