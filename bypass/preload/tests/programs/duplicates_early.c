/* pair: duplicates made before connect and before listen: what the socket becomes, it is under every
 * number. */
#include "contract.h"

static void server(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), copy = dup(fd), third = fcntl(fd, F_DUPFD, 40);
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    need(bind(copy, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    result("listen", listen(fd, 16));
    tell(port_of(third));
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = copy};
    result("add the duplicate", epoll_ctl(set, EPOLL_CTL_ADD, copy, &event));
    for (int i = 0; i < 4; i++) {
        need(epoll_wait(set, &event, 1, LONG_MS) == 1, "epoll_wait");
        int made = accept(i % 2 ? third : copy, NULL, NULL);
        outcome("accept", made);
        char buffer[8] = "";
        read_all(made, buffer, 4);
        say("%s", buffer);
        write_all(made, "ok", 2);
        result("end", read(made, buffer, 1));
        close(made);
        if (i == 1)
            result("close the first number", close(fd));
        meet();
    }
    result("listen again", listen(copy, 4));
}

static void talk(int fd, const char *text) {
    char buffer[8];
    result("write", write(fd, text, strlen(text)));
    read_all(fd, buffer, 2);
}

static void client(void) {
    int port = hear();
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    for (int i = 0; i < 4; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0), copy = dup(fd), one = 1;
        /* Time stamps are handled by the kernel alone. */
        if (i == 3)
            need(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &one, sizeof one) == 0, "SO_TIMESTAMP");
        int set = epoll_create1(0);
        struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1};
        need(epoll_ctl(set, EPOLL_CTL_ADD, copy, &event) == 0, "epoll_ctl");
        event.data.u64 = 2;
        need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
        result("connect", connect(i % 2 ? copy : fd, (struct sockaddr *)&name, sizeof name));
        result("connect the other number", connect(i % 2 ? fd : copy, (struct sockaddr *)&name, sizeof name));
        result("write by the duplicate", write(copy, "ab", 2));
        int status = fcntl(copy, F_GETFL);
        say("flags %d", status & O_NONBLOCK);
        if (i % 2)
            close(fd);
        talk(copy, "cd");
        if (i % 2 == 0)
            close(fd);
        result("the last number", close(copy));
        meet();
    }
}
