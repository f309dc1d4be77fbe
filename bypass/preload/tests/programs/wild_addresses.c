/* pair: calls on a connection and on a listener with addresses at which no program has memory: EFAULT, and nothing is lost
 * but what the kernel loses, too. */
#include "contract.h"
#include <sys/sendfile.h>
#include <sys/syscall.h>

/* Not known to the compiler. */
static void *volatile wild;

static void receive(int fd) {
    struct iovec piece = {wild, 4};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1}, no_pieces = {.msg_iov = wild, .msg_iovlen = 1};
    result("read", read(fd, wild, 4));
    result("recv", recv(fd, wild, 4, MSG_DONTWAIT));
    result("recv of all", recv(fd, wild, 4, MSG_WAITALL));
    result("peek", recv(fd, wild, 4, MSG_PEEK));
    result("urgent", recv(fd, wild, 1, MSG_OOB));
    result("recv of nothing", recv(fd, wild, 0, 0));
    result("readv", readv(fd, &piece, 1));
    result("readv without pieces", readv(fd, wild, 1));
    result("recvmsg", recvmsg(fd, &header, 0));
    result("recvmsg without pieces", recvmsg(fd, &no_pieces, 0));
    result("recvmsg without a header", recvmsg(fd, wild, 0));
    result("recvmmsg", recvmmsg(fd, wild, 1, 0, NULL));
    result("preadv2", preadv2(fd, wild, 1, -1, 0));
    if (wild) {
        struct iovec into = {&(char){0}, 1};
        struct msghdr parts = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = wild, .msg_controllen = 64};
        result("peek with parts", recvmsg(fd, &parts, MSG_PEEK));
    }
}

static void send_all(int fd) {
    struct iovec piece = {wild, 4};
    struct msghdr header = {.msg_iov = &piece, .msg_iovlen = 1}, no_pieces = {.msg_iov = wild, .msg_iovlen = 1};
    result("write", write(fd, wild, 4));
    result("send", send(fd, wild, 4, MSG_NOSIGNAL));
    result("send of nothing", send(fd, wild, 0, MSG_NOSIGNAL));
    result("writev", writev(fd, &piece, 1));
    result("writev without pieces", writev(fd, wild, 1));
    result("sendmsg", sendmsg(fd, &header, MSG_NOSIGNAL));
    result("sendmsg without pieces", sendmsg(fd, &no_pieces, MSG_NOSIGNAL));
    result("sendmsg without a header", sendmsg(fd, wild, MSG_NOSIGNAL));
    result("sendmmsg", sendmmsg(fd, wild, 1, MSG_NOSIGNAL));
    result("pwritev2", pwritev2(fd, wild, 1, -1, 0));
    struct iovec byte = {"x", 1};
    struct msghdr parts = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = wild, .msg_controllen = 24};
    result("sendmsg with parts", sendmsg(fd, &parts, MSG_NOSIGNAL));
    if (wild)
        result("sendfile", sendfile(fd, open("/dev/zero", O_RDONLY), wild, 4));
}

/* Sockets and calls that the kernel handles. */
static void ask_kernel(void) {
    int ends[2], datagrams = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", 9);
    struct iovec byte = {"x", 1};
    struct msghdr parts = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = wild, .msg_controllen = 24};
    struct mmsghdr several = {.msg_hdr = parts};
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    result("sendmsg of a Unix socket", sendmsg(ends[0], &parts, MSG_NOSIGNAL));
    result("sendmmsg of a Unix socket", sendmmsg(ends[0], &several, 1, MSG_NOSIGNAL));
    parts.msg_name = &name;
    parts.msg_namelen = sizeof name;
    result("sendmsg of a datagram", sendmsg(datagrams, &parts, MSG_NOSIGNAL));
    if (wild)
        result("sendto of a datagram", sendto(datagrams, "x", 1, 0, wild, sizeof name));
    unsigned long context = 0;
    void *requests[2] = {wild, NULL};
    int is_there = syscall(SYS_io_setup, 8, &context) == 0;
    result("io_submit", is_there ? syscall(SYS_io_submit, context, 1L, wild) : 0);
    result("io_submit of a request", is_there ? syscall(SYS_io_submit, context, 1L, requests) : 0);
    result("io_submit of none", is_there ? syscall(SYS_io_submit, context, 1L << 40, requests) : 0);
    result("io_uring_setup", syscall(SYS_io_uring_setup, 1L, wild));
    syscall(SYS_io_destroy, context);
    close(ends[0]);
    close(ends[1]);
    close(datagrams);
}

static void ask(int fd) {
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    int value = 0, set = epoll_create1(0);
    result("getsockname", getsockname(fd, wild, &length));
    result("getpeername", getpeername(fd, (struct sockaddr *)&name, wild));
    result("getsockopt", getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, wild, &length));
    result("getsockopt of no length", getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, wild));
    result("setsockopt", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, wild, sizeof value));
    result("FIONREAD", ioctl(fd, FIONREAD, wild));
    result("FIONBIO", ioctl(fd, FIONBIO, wild));
    result("connect", connect(fd, wild, sizeof name));
    result("poll", poll(wild, 1, 0));
    result("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, fd, wild));
    result("an unknown command", epoll_ctl(set, 99, fd, wild));
    result("EPOLL_CTL_DEL", epoll_ctl(set, EPOLL_CTL_DEL, fd, wild));
    if (wild) {
        result("select", select(fd + 1, wild, NULL, NULL, NULL));
        result("sendto", sendto(fd, "x", 1, 0, wild, sizeof name));
    }
    result("sendto with a long name", sendto(fd, "x", 1, 0, (struct sockaddr *)&name, 200));
    close(set);
}

/* The byte is taken all the same. */
static void names_of_none(int fd) {
    struct sockaddr_in name;
    socklen_t length = -1;
    char byte;
    result("recvfrom", recvfrom(fd, &byte, 1, 0, (struct sockaddr *)&name, wild));
    result("recvfrom into a negative length", recvfrom(fd, &byte, 1, 0, (struct sockaddr *)&name, &length));
    result("recvfrom of a wild address", recvfrom(fd, &byte, 1, 0, NULL, wild));
    say("has %c", byte);
}

static void *const WILD[] = {NULL, (void *)8, (void *)-1};

static void server(void) {
    char rest[64];
    struct sockaddr_in name;
    socklen_t negative = -1;
    int listening = listener(4), fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    result("recv before there is something", recv(fd, wild, 4, MSG_DONTWAIT));
    tell(0);
    wait_for(fd, POLLIN);
    for (int i = 0; i < 3; i++) {
        say("address %d", i);
        wild = WILD[i];
        receive(fd);
        send_all(fd);
        ask(fd);
        ask_kernel();
        names_of_none(fd);
    }
    result("the rest", recv(fd, rest, sizeof rest, 0));
    meet();
    for (int i = 0; i < 3; i++) {
        wait_for(listening, POLLIN);
        result("accept", accept(listening, i == 2 ? WILD[2] : (void *)&name, i == 0 ? &negative : WILD[i]));
        meet();
    }
    set_nonblocking(listening);
    result("accept of none", accept(listening, WILD[2], &negative));
    meet();
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    char byte;
    hear();
    write_all(fd, "abcdefghijklmnopqrstuvwxyz", 26);
    meet();
    say_poll("nothing has come", fd, POLLIN, 0);
    for (int i = 0; i < 3; i++) {
        int lost = dial_port(port);
        meet();
        wait_for(lost, POLLIN);
        result("a connection that was lost", recv(lost, &byte, 1, 0));
        close(lost);
    }
    shutdown(fd, SHUT_WR);
    result("send after the end", send(fd, wild, 4, MSG_NOSIGNAL));
    meet();
}
