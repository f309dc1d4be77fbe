/* pair: calls that work leave errno alone, as those of the kernel do: programs look at it afterwards. */
#include "contract.h"

#define MARK 77

static void say_kept(const char *name, long done) {
    say("%s %s, errno %s", name, done >= 0 ? "works" : "fails", errno == MARK ? "kept" : strerrorname_np(errno));
    errno = MARK;
}

static void use(int fd) {
    char bytes[16];
    struct pollfd one = {.fd = fd, .events = POLLIN};
    struct iovec piece = {bytes, 4};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    struct epoll_event event = {.events = EPOLLIN};
    struct timeval time = {1, 0};
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    int value = 1, set;
    errno = MARK;
    say_kept("epoll_create1", set = epoll_create1(0));
    say_kept("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    say_kept("epoll_wait", epoll_wait(set, &event, 1, LONG_MS));
    say_kept("poll", poll(&one, 1, LONG_MS));
    say_kept("recv", recv(fd, bytes, 4, MSG_PEEK));
    say_kept("read", read(fd, bytes, 4));
    say_kept("readv", readv(fd, &piece, 1));
    say_kept("recvmsg", recvmsg(fd, &message, 0));
    say_kept("write", send(fd, bytes, 4, MSG_NOSIGNAL));
    say_kept("writev", writev(fd, &piece, 1));
    say_kept("sendmsg", sendmsg(fd, &message, MSG_NOSIGNAL));
    say_kept("setsockopt", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
    say_kept("SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    say_kept("getsockname", getsockname(fd, (struct sockaddr *)&name, &length));
    say_kept("fcntl", fcntl(fd, F_SETFL, O_RDWR | O_NONBLOCK));
    say_kept("FIONREAD", ioctl(fd, FIONREAD, &value));
    say_kept("epoll_wait of nothing", epoll_wait(set, &event, 1, 20));
    say_kept("poll of nothing", poll(&one, 1, 20));
    say_kept("dup", value = dup(fd));
    say_kept("close of it", close(value));
    say_kept("shutdown", shutdown(fd, SHUT_WR));
    meet();
    errno = MARK;
    say_kept("close", close(fd));
    say_kept("close of the set", close(set));
}

static void server(void) {
    errno = MARK;
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    say_kept("socket", listening);
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    say_kept("bind", bind(listening, (struct sockaddr *)&name, sizeof name));
    say_kept("listen", listen(listening, 8));
    tell(port_of(listening));
    errno = MARK;
    int fd = accept(listening, NULL, NULL);
    say_kept("accept", fd);
    write_all(fd, "abcdefghijklmnop", 16);
    use(fd);
    meet();
    errno = MARK;
    say_kept("close of the listener", close(listening));
}

static void client(void) {
    struct sockaddr_in name = ipv4("127.0.0.1", hear());
    errno = MARK;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    say_kept("socket", fd);
    say_kept("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    write_all(fd, "abcdefghijklmnop", 16);
    use(fd);
    meet();
}
