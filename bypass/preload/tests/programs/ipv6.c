/* pair: ::1, and an IPv6 listener that takes IPv4 too. */
#include "contract.h"

static int listen6(const struct in6_addr *address, int only6, int port) {
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only6, sizeof only6);
    struct sockaddr_in6 name = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = *address};
    result("bind", bind(fd, (struct sockaddr *)&name, sizeof name));
    result("listen", listen(fd, 8));
    return fd;
}

static void show(const char *what, int fd, int (*ask)(int, struct sockaddr *, socklen_t *)) {
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    char text[64] = "";
    if (result(what, ask(fd, (struct sockaddr *)&name, &length)) == -1)
        return;
    const void *address = name.ss_family == AF_INET
                              ? (void *)&((struct sockaddr_in *)&name)->sin_addr
                              : (void *)&((struct sockaddr_in6 *)&name)->sin6_addr;
    inet_ntop(name.ss_family, address, text, sizeof text);
    say("  family %d length %u %s", name.ss_family, length, text);
}

static int getsockname_(int fd, struct sockaddr *name, socklen_t *length) {
    return getsockname(fd, name, length);
}
static int getpeername_(int fd, struct sockaddr *name, socklen_t *length) {
    return getpeername(fd, name, length);
}

static void serve(int listening) {
    int fd = accept(listening, NULL, NULL);
    show("own", fd, getsockname_);
    show("peer", fd, getpeername_);
    char byte;
    read_all(fd, &byte, 1);
    write_all(fd, &byte, 1);
    close(fd);
}

/* A port of IPv4 that is bound refuses connections, and no other program listens there. */
static int refusing(void) {
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    need(bind(fd, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    return fd;
}

static void server(void) {
    int listening = listen6(&in6addr_loopback, 1, port_of(refusing()));
    tell(port_of(listening));
    serve(listening);
    hear();
    close(listening);
    listening = listen6(&in6addr_any, 0, 0);
    tell(port_of(listening));
    serve(listening);
    serve(listening);
}

static void use(int fd) {
    show("own", fd, getsockname_);
    show("peer", fd, getpeername_);
    char byte;
    write_all(fd, "x", 1);
    result("read", read(fd, &byte, 1));
    close(fd);
}

static int dial6(int port) {
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 name = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_loopback};
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    return fd;
}

/* An IPv6 socket that does not speak IPv4, or is bound to an address that does not. */
static void cannot_reach(int port, int only6, const struct in6_addr *bound) {
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    need(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only6, sizeof only6) == 0, "IPV6_V6ONLY");
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = *bound};
    result("bind", bind(fd, (struct sockaddr *)&name, sizeof name));
    name.sin6_port = htons(port);
    need(inet_pton(AF_INET6, "::ffff:127.0.0.1", &name.sin6_addr) == 1, "address");
    result("connect to IPv4", connect(fd, (struct sockaddr *)&name, sizeof name));
    close(fd);
}

static void client(void) {
    int port = hear();
    use(dial6(port));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    result("IPv4 to an IPv6-only port", connect(fd, (struct sockaddr *)&name, sizeof name));
    tell(0);
    port = hear();
    use(dial6(port));
    cannot_reach(port, 1, &in6addr_any);
    cannot_reach(port, 0, &in6addr_loopback);
    use(dial_port(port));
}
