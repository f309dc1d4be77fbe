/* solo: Unix sockets, which stay on the kernel: pairs, abstract names, datagrams, all kinds of wait. */
#define SOLO
#include <stddef.h>
#include "contract.h"

static void solo(void) {
    int pair[2];
    char buffer[16] = "";
    result("stream pair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    result("write", write(pair[0], "abc", 3));
    say_poll("poll", pair[1], POLLIN | POLLOUT, 0);
    result("read", read(pair[1], buffer, 16));
    shutdown(pair[0], SHUT_WR);
    say_poll("poll", pair[1], POLLIN | POLLOUT | POLLRDHUP, 0);
    result("an inet pair", socketpair(AF_INET, SOCK_STREAM, 0, pair));
    result("packet pair", socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
    result("send", send(pair[0], "abcdef", 6, 0));
    result("a packet is cut", recv(pair[1], buffer, 3, MSG_TRUNC));
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = offsetof(struct sockaddr_un, sun_path) +
                 sprintf(name.sun_path + 1, "contract-%d", getpid()) + 1;
    int listening = socket(AF_UNIX, SOCK_STREAM, 0), fd = socket(AF_UNIX, SOCK_STREAM, 0);
    result("connect too early", connect(fd, (struct sockaddr *)&name, length));
    result("bind", bind(listening, (struct sockaddr *)&name, length));
    result("listen", listen(listening, 4));
    result("connect", connect(fd, (struct sockaddr *)&name, length));
    int peer = accept4(listening, NULL, NULL, SOCK_NONBLOCK);
    outcome("accept4", peer);
    result("read", read(peer, buffer, 1));
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    epoll_ctl(epoll, EPOLL_CTL_ADD, peer, &event);
    result("epoll_wait", epoll_wait(epoll, &event, 1, 0));
    write_all(fd, "x", 1);
    result("epoll_wait", epoll_wait(epoll, &event, 1, LONG_MS));
    result("epoll_wait", epoll_wait(epoll, &event, 1, 0));
    struct ucred who;
    socklen_t size = sizeof who;
    result("SO_PEERCRED", getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size));
    say("it is me %d", who.pid == getpid());
}
