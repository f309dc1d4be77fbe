/* solo: connects to addresses of broadcast, multicast and other hosts, and from one of another host. */
#define SOLO
#include "contract.h"
#include <net/if.h>
#include <sched.h>

static struct sockaddr_in name_of(const char *address, int port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, address, &name.sin_addr);
    return name;
}

static void reach(const char *address, int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = name_of(address, port);
    result(address, connect(fd, (struct sockaddr *)&name, sizeof name));
    close(fd);
}

static void reach_ipv6(const char *address, int port) {
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 name = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    inet_pton(AF_INET6, address, &name.sin6_addr);
    result(address, connect(fd, (struct sockaddr *)&name, sizeof name));
    close(fd);
}

static void reach_from(const char *address, int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in own = name_of(address, 0), name = name_of("127.0.0.1", port);
    set_int(fd, IPPROTO_IP, IP_FREEBIND, 1);
    need(bind(fd, (struct sockaddr *)&own, sizeof own) == 0, "bind");
    result(address, connect(fd, (struct sockaddr *)&name, sizeof name));
    close(fd);
}

/* In a namespace without another network, where every address can be bound to. */
static int is_prepared(void) {
    struct ifreq loopback = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int file = open("/proc/sys/net/ipv4/ip_nonlocal_bind", O_WRONLY), fd = socket(AF_INET, SOCK_DGRAM, 0);
    return file >= 0 && write(file, "1", 1) == 1 && ioctl(fd, SIOCSIFFLAGS, &loopback) == 0;
}

static void solo(void) {
    if (getenv("CONTRACT_ALONE")) {
        if (strcmp(getenv("CONTRACT_ALONE"), "1") == 0 && is_prepared()) {
            int alone = listener_on("0.0.0.0", 8);
            reach("192.0.2.1", port_of(alone));
            reach("127.0.0.1", port_of(alone));
            reach_from("192.0.2.1", port_of(alone));
        }
        return;
    }
    int listening = listener_on("0.0.0.0", 8), port = port_of(listening), fd;
    reach("127.255.255.255", port);
    reach("224.0.0.1", port);
    reach("255.255.255.255", port);
    reach("127.0.0.2", port);
    fd = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 any = {.sin6_family = AF_INET6};
    socklen_t length = sizeof any;
    if (bind(fd, (struct sockaddr *)&any, sizeof any) == 0 && listen(fd, 8) == 0) {
        getsockname(fd, (struct sockaddr *)&any, &length);
        reach_ipv6("ff01::1", ntohs(any.sin6_port));
        reach_ipv6("::1", ntohs(any.sin6_port));
    }
    reach_from("192.0.2.1", port);
    reach_from("127.0.0.9", port);
    setenv("CONTRACT_ALONE", unshare(CLONE_NEWNET) ? "0" : "1", 1);
    execl("/proc/self/exe", program_invocation_name, "solo", NULL);
}
