/* solo: calls on sockets in the wrong state, and on numbers that do not refer to sockets. */
#define SOLO
#include "contract.h"
#include <sys/sendfile.h>

/* Before the socket is asked for anything. */
static void no_bytes(int fd) {
    char byte;
    struct iovec none[2] = {{&byte, 0}, {&byte, 0}};
    result("read of no bytes", read(fd, &byte, 0));
    result("readv of no bytes", readv(fd, none, 2));
    result("writev of no bytes", writev(fd, none, 2));
    result("writev of no pieces", writev(fd, none, 0));
}

static volatile sig_atomic_t broken;

static void count_broken(int number) { broken += number == SIGPIPE; }

/* From a file and a pipe into a socket without a connection, and from it. */
static void no_connection(const char *what, int fd) {
    int file = open("/proc/self/exe", O_RDONLY), pipes[2];
    need(file >= 0 && pipe2(pipes, O_NONBLOCK) == 0 && write(pipes[1], "x", 1) == 1, "a file");
    say("%s", what);
    result("sendfile", sendfile(fd, file, NULL, 1));
    result("splice into it", splice(pipes[0], NULL, fd, NULL, 1, SPLICE_F_NONBLOCK));
    result("splice out of it", splice(fd, NULL, pipes[1], NULL, 1, SPLICE_F_NONBLOCK));
    say("SIGPIPE %d times", broken);
    close(file), close(pipes[0]), close(pipes[1]);
}

static void every_call(const char *what, int fd) {
    char byte = 'x';
    struct sockaddr_in name = ipv4("127.0.0.1", 9);
    socklen_t length = sizeof name;
    struct msghdr message = {0};
    int value = 0;
    say("%s", what);
    result("recv", recv(fd, &byte, 1, MSG_DONTWAIT));
    result("urgent", recv(fd, &byte, 1, MSG_OOB));
    result("send", send(fd, &byte, 1, MSG_NOSIGNAL));
    result("recvmsg", recvmsg(fd, &message, MSG_DONTWAIT));
    result("getpeername", getpeername(fd, (struct sockaddr *)&name, &length));
    length = sizeof name;
    result("getsockname", getsockname(fd, (struct sockaddr *)&name, &length));
    result("accept", accept(fd, NULL, NULL));
    result("shutdown", shutdown(fd, SHUT_RD));
    length = sizeof value;
    result("getsockopt", getsockopt(fd, SOL_SOCKET, SO_TYPE, &value, &length));
    result("setsockopt", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
    result("FIONREAD", ioctl(fd, FIONREAD, &value));
    result("F_GETFL works", fcntl(fd, F_GETFL) >= 0);
}

static void solo(void) {
    signal(SIGPIPE, SIG_IGN);
    every_call("a closed number", 900);
    every_call("a negative number", -1);
    int pipes[2];
    need(pipe(pipes) == 0, "pipe");
    say("a pipe");
    char byte;
    result("recv", recv(pipes[0], &byte, 1, 0));
    result("send", send(pipes[1], &byte, 1, 0));
    result("listen", listen(pipes[0], 1));
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    every_call("a fresh socket", fresh);
    say_poll("a fresh socket", fresh, POLLIN | POLLOUT | POLLRDHUP, 0);
    result("read", read(fresh, &byte, 1));
    result("write", write(fresh, &byte, 0));
    no_bytes(fresh);
    result("an unknown type", socket(AF_INET, 77, 0));
    result("an unknown family", socket(200, SOCK_STREAM, 0));
    result("a wrong protocol", socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
    struct sockaddr_in name = ipv4("127.0.0.1", 9);
    name.sin_family = 99;
    result("connect to an unknown family", connect(fresh, (struct sockaddr *)&name, sizeof name));
    result("connect to a short name", connect(fresh, (struct sockaddr *)&name, 3));
    int listening = listener_on("127.0.0.1", 4);
    int fd = dial_port(port_of(listening)), peer = accept(listening, NULL, NULL);
    no_bytes(listening);
    struct sigaction action = {.sa_handler = count_broken};
    need(sigaction(SIGPIPE, &action, NULL) == 0, "sigaction");
    no_connection("a fresh socket", fresh);
    no_connection("a listener", listening);
    no_bytes(fd);
    shutdown(fd, SHUT_WR);
    no_bytes(fd);
    no_bytes(900);
    name = ipv4("127.0.0.1", port_of(listening));
    result("connect twice", connect(fd, (struct sockaddr *)&name, sizeof name));
    result("connect an accepted one", connect(peer, (struct sockaddr *)&name, sizeof name));
    struct sockaddr_in own;
    socklen_t negative = -1;
    result("a negative length", getsockname(fd, (struct sockaddr *)&own, &negative));
    result("an unknown command", fcntl(fd, 9999, 0));
    int unknown = 0;
    result("an unknown ioctl", ioctl(fd, 0xdead, &unknown));
    name.sin_family = AF_UNSPEC;
    result("disconnect", connect(fd, (struct sockaddr *)&name, sizeof name));
    result("send after it", send(fd, "x", 1, MSG_NOSIGNAL));
    wait_for(peer, POLLIN);
    result("the peer reads", read(peer, &byte, 1));
}
