/* pair: a negative time of SO_LINGER has no end, and a negative SO_SNDBUF or SO_RCVBUF is the largest. */
#include "contract.h"

#define BYTES 20000
#define MANY (1 << 20)
#define MORE_THAN_DEFAULT (1 << 17)

static char bytes[MANY];

static int accept_one(int listening) {
    int fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    return fd;
}

static void server(void) {
    int listening = listener(4), fd = accept_one(listening);
    struct linger linger = {1, -1};
    result("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    write_all(fd, bytes, BYTES);
    result("close", close(fd));
    fd = accept_one(listening);
    hear();
}

static void client(void) {
    int port = hear(), fd = dial_port(port), negative = -1;
    read_all(fd, bytes, BYTES);
    result("the end", read(fd, bytes, 1));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    result("SO_SNDBUF", setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &negative, sizeof negative));
    result("SO_RCVBUF", setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &negative, sizeof negative));
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    set_nonblocking(fd);
    long sum = 0;
    ssize_t put;
    while (sum < MANY && (put = write(fd, bytes, MANY - sum)) > 0)
        sum += put;
    say("many bytes fit %d", sum > MORE_THAN_DEFAULT);
    tell(0);
}
