/* pair: one port with several listeners: IPv4 next to IPv6 only, one address next to all, and which
 * of them each way of writing an address of this host means. */
#include "contract.h"

/* A socket that is bound, or -1. */
static int try_bind(const char *address, int port, int v6_only, int shares) {
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    int is_six = inet_pton(AF_INET6, address, &six.sin6_addr) == 1;
    inet_pton(AF_INET, address, &four.sin_addr);
    int fd = socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    if (is_six)
        set_int(fd, IPPROTO_IPV6, IPV6_V6ONLY, v6_only);
    set_int(fd, SOL_SOCKET, SO_REUSEPORT, shares);
    int done = is_six ? bind(fd, (struct sockaddr *)&six, sizeof six)
                      : bind(fd, (struct sockaddr *)&four, sizeof four);
    if (done == 0)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int try_listen(const char *name, const char *address, int port, int v6_only, int shares) {
    int fd = try_bind(address, port, v6_only, shares);
    int done = fd < 0 ? -1 : listen(fd, 16);
    result(name, done);
    return done == 0 ? fd : -1;
}

/* Says its letter to everybody who comes, until the other role has asked all. */
static void serve(const int *fds, const char *letters, int count) {
    struct pollfd entries[4] = {{.fd = CHANNEL, .events = POLLIN}};
    for (int i = 0; i < count; i++)
        entries[i + 1] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    for (;;) {
        need(poll(entries, count + 1, LONG_MS) > 0, "poll");
        for (int i = 0; i < count; i++)
            if (entries[i + 1].revents) {
                int fd = accept(fds[i], NULL, NULL);
                write_all(fd, &letters[i], 1);
                close(fd);
            }
        if (entries[0].revents)
            break;
    }
    hear();
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

static int is_free(const char *address, int port) {
    int fd = try_bind(address, port, 1, 0);
    close(fd);
    return fd >= 0;
}

/* Listens at a port of the kernel's choice that no other socket has at the further
 * addresses: the kernel looks at the one address only. */
static int any_port(const char *address, int v6_only, int shares, const char *const *beside,
                    int *fd) {
    int port, is_alone;
    do {
        *fd = try_bind(address, 0, v6_only, shares);
        need(*fd >= 0, "any port");
        port = port_of(*fd);
        is_alone = 1;
        for (const char *const *other = beside; *other; other++)
            is_alone &= is_free(*other, port);
        if (!is_alone)
            close(*fd);
    } while (!is_alone);
    result("any port", listen(*fd, 16));
    return port;
}

static void server(void) {
    const char *const none[] = {NULL}, *const of_both[] = {"::1", "127.0.0.2", NULL},
                      *const of_four[] = {"0.0.0.0", NULL};
    int fds[3], port = any_port("127.0.0.1", 0, 0, of_both, &fds[0]);
    fds[1] = try_listen("::1 next to it", "::1", port, 1, 0);
    fds[2] = try_listen("127.0.0.2 next to them", "127.0.0.2", port, 0, 0);
    try_listen("0.0.0.0 is taken", "0.0.0.0", port, 0, 0);
    try_listen(":: for both is taken", "::", port, 0, 0);
    try_listen("mapped is taken", "::ffff:127.0.0.1", port, 0, 0);
    tell(port);
    serve(fds, "46t", 3);
    port = any_port("::", 1, 0, of_four, &fds[0]);
    fds[1] = try_listen("0.0.0.0 next to it", "0.0.0.0", port, 0, 0);
    tell(port);
    serve(fds, "64", 2);
    port = any_port("::", 0, 0, none, &fds[0]);
    try_listen("0.0.0.0 is taken", "0.0.0.0", port, 0, 0);
    tell(port);
    serve(fds, "b", 1);
    port = any_port("0.0.0.0", 0, 1, none, &fds[0]);
    fds[1] = try_listen("one address next to all", "127.0.0.1", port, 0, 1);
    tell(port);
    serve(fds, "a1", 2);
    port = any_port("::ffff:127.0.0.1", 0, 0, none, &fds[0]);
    tell(port);
    serve(fds, "m", 1);
}

/* The address of a name that has just been asked for. */
static const char *text_of(const struct sockaddr_storage *name, char *text) {
    const void *address = name->ss_family == AF_INET
                              ? (const void *)&((const struct sockaddr_in *)name)->sin_addr
                              : (const void *)&((const struct sockaddr_in6 *)name)->sin6_addr;
    return inet_ntop(name->ss_family, address, text, 64);
}

static void ask(const char *address, int family, int port) {
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET6, address, &six.sin6_addr);
    inet_pton(AF_INET, address, &four.sin_addr);
    struct sockaddr *name = family == AF_INET ? (struct sockaddr *)&four : (struct sockaddr *)&six;
    socklen_t length = family == AF_INET ? sizeof four : sizeof six;
    int fd = socket(family, SOCK_STREAM, 0);
    char letter = '-', own_text[64], peer_text[64];
    struct sockaddr_storage own, peer;
    if (connect(fd, name, length) == -1) {
        say("%s: %s", address, strerrorname_np(errno));
    } else {
        recv(fd, &letter, 1, 0);
        length = sizeof peer;
        getpeername(fd, (struct sockaddr *)&peer, &length);
        length = sizeof own;
        getsockname(fd, (struct sockaddr *)&own, &length);
        say("%s: %c, from %s to %s", address, letter, text_of(&own, own_text),
            text_of(&peer, peer_text));
    }
    close(fd);
}

static void client(void) {
    for (int round = 0; round < 5; round++) {
        int port = hear();
        say("round %d", round);
        ask("127.0.0.1", AF_INET, port);
        ask("127.0.0.2", AF_INET, port);
        ask("127.0.0.3", AF_INET, port);
        ask("0.0.0.0", AF_INET, port);
        ask("::1", AF_INET6, port);
        ask("::", AF_INET6, port);
        ask("::ffff:127.0.0.1", AF_INET6, port);
        ask("::ffff:127.0.0.2", AF_INET6, port);
        ask("::ffff:0.0.0.0", AF_INET6, port);
        tell(0);
    }
}
