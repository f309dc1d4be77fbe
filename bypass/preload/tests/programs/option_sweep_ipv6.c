/* pair: which options there are on connections over ::1, and how long their values: every number of four levels is
 * asked for. */
#include "contract.h"

/* Not asked for: they depend on rights or on what is loaded, or a connection of the library's says less. */
static int is_left_out(int level, int name) {
    return (level == SOL_SOCKET && (name == SO_COOKIE || name == SO_PEERSEC)) ||
           (level == IPPROTO_TCP && name == TCP_INFO) || (level == IPPROTO_IPV6 && name == IPV6_PATHMTU);
}

static void sweep(const char *state, int fd, int level, int names, socklen_t room) {
    char line[4096] = "";
    for (int name = 1; name <= names; name++) {
        if (is_left_out(level, name))
            continue;
        char value[512] = "";
        socklen_t length = room;
        errno = 0;
        int done = getsockopt(fd, level, name, value, &length);
        if (done == 0)
            sprintf(line + strlen(line), " %d:%u", name, length);
        else if (errno != ENOPROTOOPT && errno != EOPNOTSUPP)
            sprintf(line + strlen(line), " %d:%s", name, strerrorname_np(errno));
    }
    say("%s, level %d, room %u:%s", state, level, room, line);
}

static void sweep_all(const char *state, int fd) {
    static const socklen_t rooms[] = {0, 4, 512};
    for (int i = 0; i < 3; i++) {
        sweep(state, fd, SOL_SOCKET, 84, rooms[i]);
        sweep(state, fd, IPPROTO_TCP, 48, rooms[i]);
        sweep(state, fd, IPPROTO_IP, 60, rooms[i]);
        sweep(state, fd, IPPROTO_IPV6, 80, rooms[i]);
    }
    int mtu = 0;
    socklen_t length = sizeof mtu;
    result("IPV6_MTU", getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &mtu, &length));
    say("  %d", mtu);
    length = sizeof mtu;
    result("TCP_MAXSEG", getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &mtu, &length));
    struct tcp_info info = tcp_info(fd);
    if (info.tcpi_state == TCP_ESTABLISHED)
        say("  within it %d, stated %u, packets of %u", mtu <= (int)info.tcpi_advmss, info.tcpi_advmss, info.tcpi_pmtu);
}

static void server(void) {
    int listening = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    need(bind(listening, (struct sockaddr *)&name, sizeof name) == 0 && listen(listening, 4) == 0, "listen");
    tell(port_of(listening));
    int fd = accept(listening, NULL, NULL);
    sweep_all("listening", listening);
    sweep_all("accepted", fd);
    meet();
}

static void client(void) {
    struct sockaddr_in6 name = {
        .sin6_family = AF_INET6, .sin6_addr = in6addr_loopback, .sin6_port = htons(hear())};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    sweep_all("connected", fd);
    meet();
}
