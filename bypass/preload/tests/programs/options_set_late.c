/* pair: what is said of every option that is set on a connection, each on one of its own, over both families. */
#include "contract.h"

/* Not set: the library refuses some of these and what guards connections; the kernel's answer to the others depends on
 * rights or on what is loaded, and a connection under repair ends without a word. */
static int is_left_out(int level, int name) {
    switch (level) {
    case SOL_SOCKET:
        return name == SO_PEEK_OFF || name == SO_ZEROCOPY || name == SO_BINDTODEVICE;
    case IPPROTO_TCP:
        return (name >= TCP_REPAIR && name <= TCP_REPAIR_OPTIONS) || name == 36 /* TCP_INQ */ || name == TCP_MD5SIG || name == TCP_MD5SIG_EXT || name == TCP_ULP ||
               (name >= 38 && name <= 43) /* TCP_AO_… */;
    case IPPROTO_IP:
        return name == IP_MINTTL;
    default:
        return name == 73 /* IPV6_MINHOPCOUNT */;
    }
}

static int dial_family(int family, int port) {
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    struct sockaddr_in6 name6 = {
        .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback, .sin6_port = htons(port)};
    int fd = socket(family, SOCK_STREAM, 0);
    need(fd >= 0, "socket");
    int done = family == AF_INET ? connect(fd, (struct sockaddr *)&name, sizeof name)
                                 : connect(fd, (struct sockaddr *)&name6, sizeof name6);
    need(done == 0, "connect");
    return fd;
}

static void sweep(int family, int port, int level, int names, int value) {
    char line[4096] = "";
    for (int name = 1; name <= names; name++) {
        if (is_left_out(level, name))
            continue;
        int fd = dial_family(family, port);
        int done = setsockopt(fd, level, name, &value, sizeof value);
        if (done == 0)
            sprintf(line + strlen(line), " %d", name);
        else if (errno != ENOPROTOOPT)
            sprintf(line + strlen(line), " %d:%s", name, strerrorname_np(errno));
        close(fd);
    }
    say("family %d, level %d, value %d:%s", family, level, value, line);
}

static void sweep_all(int family, int port) {
    for (int value = 0; value < 2; value++) {
        sweep(family, port, SOL_SOCKET, 84, value);
        sweep(family, port, IPPROTO_TCP, 48, value);
        sweep(family, port, IPPROTO_IP, 60, value);
        if (family == AF_INET6)
            sweep(family, port, IPPROTO_IPV6, 80, value);
    }
}

/* Takes connections until the first that says something. */
static void serve(int listening) {
    char byte;
    for (int fd, got = 0; !got; close(fd)) {
        fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        got = read(fd, &byte, 1) == 1;
    }
}

static void server(void) {
    serve(listener(64));
    int listening = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    need(bind(listening, (struct sockaddr *)&name, sizeof name) == 0 && listen(listening, 64) == 0, "listen");
    tell(port_of(listening));
    serve(listening);
}

static void client(void) {
    static const int families[] = {AF_INET, AF_INET6};
    for (int i = 0; i < 2; i++) {
        int port = hear();
        sweep_all(families[i], port);
        int fd = dial_family(families[i], port);
        write_all(fd, "x", 1);
        close(fd);
    }
}
