/* pair: socket options, ioctl and fstat answer as the kernel's. */
#include <linux/sockios.h>
#include "contract.h"

static void get(const char *name, int fd, int level, int option) {
    int value = -7;
    socklen_t length = sizeof value;
    if (result(name, getsockopt(fd, level, option, &value, &length)) == 0)
        say("  value %d length %u", value, length);
}

static void set(const char *name, int fd, int level, int option, int value) {
    result(name, setsockopt(fd, level, option, &value, sizeof value));
    get(name, fd, level, option);
}

static void all(int fd) {
    get("SO_TYPE", fd, SOL_SOCKET, SO_TYPE);
    get("SO_DOMAIN", fd, SOL_SOCKET, SO_DOMAIN);
    get("SO_PROTOCOL", fd, SOL_SOCKET, SO_PROTOCOL);
    get("SO_ACCEPTCONN", fd, SOL_SOCKET, SO_ACCEPTCONN);
    get("SO_ERROR", fd, SOL_SOCKET, SO_ERROR);
    set("SO_REUSEADDR", fd, SOL_SOCKET, SO_REUSEADDR, 1);
    set("SO_KEEPALIVE", fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set("SO_OOBINLINE", fd, SOL_SOCKET, SO_OOBINLINE, 1);
    set("SO_SNDBUF", fd, SOL_SOCKET, SO_SNDBUF, 65536);
    set("SO_RCVBUF", fd, SOL_SOCKET, SO_RCVBUF, 65536);
    set("SO_RCVLOWAT", fd, SOL_SOCKET, SO_RCVLOWAT, 1);
    set("TCP_NODELAY", fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set("TCP_KEEPIDLE", fd, IPPROTO_TCP, TCP_KEEPIDLE, 33);
    get("TCP_QUICKACK", fd, IPPROTO_TCP, TCP_QUICKACK);
    set("TCP_QUICKACK off", fd, IPPROTO_TCP, TCP_QUICKACK, 0);
    set("TCP_QUICKACK", fd, IPPROTO_TCP, TCP_QUICKACK, 1);
    set("TCP_CORK", fd, IPPROTO_TCP, TCP_CORK, 1);
    set("TCP_CORK off", fd, IPPROTO_TCP, TCP_CORK, 0);
    set("TCP_USER_TIMEOUT", fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 4000);
    set("IP_TOS", fd, IPPROTO_IP, IP_TOS, 16);
    get("an unknown option", fd, SOL_SOCKET, 9999);
    get("an unknown TCP option", fd, IPPROTO_TCP, 9999);
    int value = 1;
    result("a short value", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, 1));
    result("set an unknown option", setsockopt(fd, SOL_SOCKET, 9999, &value, sizeof value));
    struct linger linger = {1, 5};
    result("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    socklen_t length = sizeof linger;
    memset(&linger, 0, sizeof linger);
    result("SO_LINGER", getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length));
    say("  %d %d", linger.l_onoff, linger.l_linger);
    linger = (struct linger){0, 9};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length);
    say("  off %d %d", linger.l_onoff, linger.l_linger);
    int on = 1;
    result("FIONBIO", ioctl(fd, FIONBIO, &on));
    say("  nonblock %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    on = 0;
    result("FIONBIO off", ioctl(fd, FIONBIO, &on));
    struct stat state;
    result("fstat", fstat(fd, &state));
    say("  socket %d", S_ISSOCK(state.st_mode));
    result("FIOCLEX", ioctl(fd, FIOCLEX));
    say("  cloexec %d", fcntl(fd, F_GETFD));
    result("isatty", isatty(fd));
}

static void connected(int fd) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    result("TCP_INFO", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
    say("  established %d mss %d", info.tcpi_state == TCP_ESTABLISHED, info.tcpi_snd_mss > 500);
    int left = -1;
    result("SIOCOUTQ", ioctl(fd, SIOCOUTQ, &left));
    say("  all received %d", left == 0);
    char name[16] = "";
    length = sizeof name;
    outcome("TCP_CONGESTION", getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length));
    say("  has a name %d", name[0] != 0);
}

static void server(void) {
    int listening = listener_on("127.0.0.1", 4);
    int on = 1;
    setsockopt(listening, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(listening, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    tell(port_of(listening));
    int fd = accept(listening, NULL, NULL);
    get("inherited TCP_NODELAY", fd, IPPROTO_TCP, TCP_NODELAY);
    get("inherited SO_KEEPALIVE", fd, SOL_SOCKET, SO_KEEPALIVE);
    all(fd);
    connected(fd);
    get("listener's SO_ACCEPTCONN", listening, SOL_SOCKET, SO_ACCEPTCONN);
    struct tcp_info info;
    socklen_t length = sizeof info;
    getsockopt(listening, IPPROTO_TCP, TCP_INFO, &info, &length);
    say("listen state %d", info.tcpi_state == TCP_LISTEN);
    meet();
}

static void client(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    say("before connect");
    all(fd);
    struct sockaddr_in name = ipv4("127.0.0.1", hear());
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    say("connected");
    get("TCP_NODELAY is kept", fd, IPPROTO_TCP, TCP_NODELAY);
    get("SO_KEEPALIVE is kept", fd, SOL_SOCKET, SO_KEEPALIVE);
    all(fd);
    connected(fd);
    meet();
}
