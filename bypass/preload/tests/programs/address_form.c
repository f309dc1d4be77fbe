/* pair: an IPv6 socket with a connection of IPv4 becomes an IPv4 socket (IPV6_ADDRFORM). */
#include "contract.h"

static int dial_form(const char *address, int port) {
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    need(inet_pton(AF_INET6, address, &name.sin6_addr) == 1, "address");
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    return fd;
}

static void form(const char *name, int fd, int family, socklen_t length) {
    result(name, setsockopt(fd, SOL_IPV6, IPV6_ADDRFORM, &family, length));
}

static void say_form(int fd) {
    struct sockaddr_storage own, peer;
    socklen_t length = sizeof own, peer_length = sizeof peer, size = sizeof(int);
    int domain = 0;
    getsockname(fd, (struct sockaddr *)&own, &length);
    getpeername(fd, (struct sockaddr *)&peer, &peer_length);
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    say("families %d %d, lengths %d %d, domain %d", own.ss_family, peer.ss_family, length, peer_length, domain);
    result("IPV6_ADDRFORM", getsockopt(fd, SOL_IPV6, IPV6_ADDRFORM, &domain, &size));
}

/* The socket keeps its options, and the port stays the connection's. */
static void form_with_options(int port) {
    int fd = socket(AF_INET6, SOCK_STREAM, 0), other = socket(AF_INET, SOCK_STREAM, 0), value = 0;
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    socklen_t size = sizeof value;
    set_int(fd, SOL_SOCKET, SO_PRIORITY, 3);
    set_int(fd, SOL_TCP, TCP_KEEPIDLE, 77);
    set_int(fd, SOL_IP, IP_TTL, 55);
    need(bind(fd, (struct sockaddr *)&any, sizeof any) == 0, "bind");
    need(inet_pton(AF_INET6, "::ffff:127.0.0.1", &name.sin6_addr) == 1, "address");
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    /* A process that may not set one has none. */
    value = 0x9abcdef0;
    setsockopt(fd, SOL_SOCKET, SO_MARK, &value, size);
    need(fcntl(fd, F_SETOWN, getpid()) == 0 && fcntl(fd, F_SETSIG, SIGUSR2) == 0, "F_SETOWN");
    int mark = 0, before = 0;
    getsockopt(fd, SOL_SOCKET, SO_MARK, &before, &size);
    form("with options", fd, AF_INET, sizeof(int));
    say_form(fd);
    getsockopt(fd, SOL_SOCKET, SO_MARK, &mark, &size);
    say("the mark is kept %d", mark == before);
    say("so is the owner %d, with signal %d", fcntl(fd, F_GETOWN) == getpid(), fcntl(fd, F_GETSIG));
    getsockopt(fd, SOL_SOCKET, SO_PRIORITY, &value, &size);
    say("priority %d", value);
    getsockopt(fd, SOL_TCP, TCP_KEEPIDLE, &value, &size);
    say("idle %d", value);
    getsockopt(fd, SOL_IP, IP_TTL, &value, &size);
    say("hops %d", value);
    struct sockaddr_in same = ipv4("127.0.0.1", port_of(fd));
    result("another there", bind(other, (struct sockaddr *)&same, sizeof same));
    getsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &value, &size);
    say("shares %d", value);
    close(fd);
    close(other);
}

/* An IPv4 socket as any other; what has stayed IPv6, because the kernel has no such option, is left out. */
static void dissolve(int fd) {
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    int domain = 0;
    socklen_t size = sizeof domain;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    if (domain != AF_INET)
        return;
    result("dissolve", connect(fd, &nowhere, sizeof nowhere));
    result("bind", bind(fd, (struct sockaddr *)&name, sizeof name));
    result("listen", listen(fd, 4));
    int near = dial_port(port_of(fd));
    outcome("accept", accept(fd, NULL, NULL));
    close(near);
}

static void server(void) {
    int listening = listener(16), own = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    need(bind(own, (struct sockaddr *)&any, sizeof any) == 0 && listen(own, 4) == 0, "an IPv6 listener");
    tell(port_of(own));
    for (int i = 0; i < 2; i++) {
        int fd = accept(listening, NULL, NULL);
        char byte;
        read_all(fd, &byte, 1);
        write_all(fd, "answer", 6);
        meet();
        close(fd);
    }
    int fd = accept(own, NULL, NULL);
    meet();
    close(fd);
    fd = accept(listening, NULL, NULL);
    meet();
    close(fd);
}

static void client(void) {
    int port = hear(), port_ipv6 = hear(), fd = dial_form("::ffff:127.0.0.1", port), again = dup(fd);
    char bytes[8] = "";
    say_form(fd);
    form("the same", fd, AF_INET6, sizeof(int));
    form("none", fd, 77, sizeof(int));
    form("short", fd, AF_INET, 2);
    form("IPv4", fd, AF_INET, sizeof(int));
    say_form(fd);
    say_form(again);
    form("IPv4 again", fd, AF_INET, sizeof(int));
    write_all(fd, "x", 1);
    read_all(again, bytes, 6);
    say("%s", bytes);
    close(again);
    dissolve(fd);
    meet();
    fd = dial_form("::ffff:127.0.0.1", port);
    write_all(fd, "x", 1);
    shutdown(fd, SHUT_WR);
    form("one that is shut", fd, AF_INET, sizeof(int));
    meet();
    fd = dial_form("::1", port_ipv6);
    form("one of IPv6", fd, AF_INET, sizeof(int));
    meet();
    form_with_options(port);
    meet();
    form("one that is not connected", socket(AF_INET6, SOCK_STREAM, 0), AF_INET, sizeof(int));
}
