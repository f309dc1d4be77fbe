/* solo: options that an accepted socket has from its listener, and keeps when they are set on it. */
#define SOLO
#include "contract.h"

static void say_option(const char *name, int fd, int level, int option) {
    int value = 0;
    socklen_t length = sizeof value;
    result(name, getsockopt(fd, level, option, &value, &length));
    say("  %d", value);
}

static void set_option(int fd, int level, int option, int value) {
    need(setsockopt(fd, level, option, &value, sizeof value) == 0, "setsockopt");
}

static void say_all(int fd) {
    say_option("SO_REUSEADDR", fd, SOL_SOCKET, SO_REUSEADDR);
    say_option("SO_KEEPALIVE", fd, SOL_SOCKET, SO_KEEPALIVE);
    say_option("SO_RCVBUF", fd, SOL_SOCKET, SO_RCVBUF);
    say_option("SO_SNDBUF", fd, SOL_SOCKET, SO_SNDBUF);
    say_option("SO_RCVLOWAT", fd, SOL_SOCKET, SO_RCVLOWAT);
    say_option("TCP_NODELAY", fd, IPPROTO_TCP, TCP_NODELAY);
    say_option("TCP_CORK", fd, IPPROTO_TCP, TCP_CORK);
    say_option("TCP_QUICKACK", fd, IPPROTO_TCP, TCP_QUICKACK);
    say_option("TCP_KEEPIDLE", fd, IPPROTO_TCP, TCP_KEEPIDLE);
    say_option("TCP_KEEPINTVL", fd, IPPROTO_TCP, TCP_KEEPINTVL);
    say_option("TCP_KEEPCNT", fd, IPPROTO_TCP, TCP_KEEPCNT);
    say_option("TCP_USER_TIMEOUT", fd, IPPROTO_TCP, TCP_USER_TIMEOUT);
    say_option("IP_TOS", fd, IPPROTO_IP, IP_TOS);
}

static void solo(void) {
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    set_option(listening, SOL_SOCKET, SO_REUSEADDR, 1);
    set_option(listening, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(listening, SOL_SOCKET, SO_RCVBUF, 50000);
    set_option(listening, SOL_SOCKET, SO_SNDBUF, 60000);
    set_option(listening, SOL_SOCKET, SO_RCVLOWAT, 3);
    set_option(listening, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(listening, IPPROTO_TCP, TCP_CORK, 1);
    set_option(listening, IPPROTO_TCP, TCP_QUICKACK, 0);
    set_option(listening, IPPROTO_TCP, TCP_KEEPIDLE, 77);
    set_option(listening, IPPROTO_TCP, TCP_KEEPINTVL, 7);
    set_option(listening, IPPROTO_TCP, TCP_KEEPCNT, 5);
    set_option(listening, IPPROTO_TCP, TCP_USER_TIMEOUT, 12345);
    set_option(listening, IPPROTO_IP, IP_TOS, 0x10);
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    need(bind(listening, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    need(listen(listening, 8) == 0, "listen");
    int client = dial_port(port_of(listening));
    int fd = accept(listening, NULL, NULL);
    say("accepted");
    say_all(fd);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 99);
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 0);
    int second = dial_port(port_of(listening));
    int other = accept(listening, NULL, NULL);
    set_option(other, IPPROTO_TCP, TCP_KEEPIDLE, 55);
    say("after some were set");
    say_all(fd);
    say("another, of which one was set before it was asked for");
    say_all(other);
    write_all(client, "ab", 2);
    say_poll("fewer bytes than the mark", fd, POLLIN, 20);
    write_all(client, "c", 1);
    say_poll("as many", fd, POLLIN, LONG_MS);
    close(second);
}
