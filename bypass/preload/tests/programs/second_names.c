/* pair: a program that calls libc by its second names, which are public since its first version. */
#include "contract.h"

ssize_t __read(int fd, void *bytes, size_t count);
ssize_t __write(int fd, const void *bytes, size_t count);
ssize_t __send(int fd, const void *bytes, size_t count, int flags);
int __connect(int fd, const struct sockaddr *name, socklen_t length);
int __close(int fd);
int __dup2(int fd, int to);
int __fcntl(int fd, int command, ...);
int __poll(struct pollfd *entries, nfds_t count, int timeout);
int __select(int count, fd_set *read, fd_set *write, fd_set *except, struct timeval *time);

static void server(void) {
    int fd = serve_one();
    char bytes[16] = "";
    struct pollfd one = {fd, POLLIN, 0};
    result("poll", __poll(&one, 1, LONG_MS));
    say("  %s", events(one.revents));
    read_all(fd, bytes, 8);
    say("read %s", bytes);
    result("write", __write(fd, "back", 4));
    meet();
    result("dup2", __dup2(fd, 80) == 80);
    result("close", __close(fd));
    result("it is closed", fcntl(fd, F_GETFD));
    result("write", __write(80, "more", 4));
    result("close", __close(80));
    meet();
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    result("connect once more", __connect(fd, (struct sockaddr *)&name, sizeof name));
    result("send", __send(fd, "1234", 4, MSG_NOSIGNAL));
    result("write", __write(fd, "5678", 4));
    char bytes[16] = "";
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    result("select", __select(fd + 1, &set, NULL, NULL, NULL));
    result("read", __read(fd, bytes, 4));
    say("read %s", bytes);
    result("F_SETFL", __fcntl(fd, F_SETFL, O_NONBLOCK));
    result("nothing there", __read(fd, bytes, 4));
    meet();
    meet();
    /* Between hosts bytes take their time. */
    result("F_SETFL", __fcntl(fd, F_SETFL, 0));
    result("read", __read(fd, bytes, 8));
    result("the end", __read(fd, bytes, 8));
    result("close", __close(fd));
}
