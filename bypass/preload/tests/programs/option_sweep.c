/* pair: which options there are and how long their values: every number of four levels is asked for, with
 * room for much, little and nothing. */
#include "contract.h"

/* Not asked for: the first depend on rights or on what is loaded; a connection of the library's says less of
 * itself in the third, and takes more room than it needs for the last. */
static int is_left_out(int level, int name) {
    return (level == SOL_SOCKET && (name == SO_COOKIE || name == SO_PEERSEC || name == SO_PEERNAME)) ||
           (level == IPPROTO_TCP && name == TCP_INFO);
}

static void sweep(const char *state, int fd, int level, int names, socklen_t room) {
    char line[4096] = "";
    for (int name = 1; name <= names; name++) {
        if (is_left_out(level, name))
            continue;
        /* TCP_ZEROCOPY_RECEIVE reads what is there before it answers. */
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
    static const socklen_t rooms[] = {0, 1, 4, 512};
    for (int i = 0; i < 4; i++) {
        sweep(state, fd, SOL_SOCKET, 84, rooms[i]);
        sweep(state, fd, IPPROTO_TCP, 48, rooms[i]);
        sweep(state, fd, IPPROTO_IP, 60, rooms[i]);
        sweep(state, fd, IPPROTO_IPV6, 80, rooms[i]);
    }
}

/* Values that are too short, too long or not there. */
static void set_lengths(const char *state, int fd) {
    static const int options[][2] = {
        {SOL_SOCKET, SO_REUSEADDR}, {SOL_SOCKET, SO_KEEPALIVE},  {SOL_SOCKET, SO_LINGER},
        {SOL_SOCKET, SO_RCVTIMEO},  {SOL_SOCKET, SO_SNDTIMEO},   {SOL_SOCKET, SO_OOBINLINE},
        {SOL_SOCKET, SO_SNDBUF},    {SOL_SOCKET, SO_RCVBUF},     {SOL_SOCKET, SO_RCVLOWAT},
        {SOL_SOCKET, SO_ERROR},     {SOL_SOCKET, SO_TYPE},       {SOL_SOCKET, SO_PRIORITY},
        {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_TCP, TCP_CORK},     {IPPROTO_TCP, TCP_KEEPIDLE},
        {IPPROTO_TCP, TCP_INFO},    {IPPROTO_TCP, TCP_QUICKACK}, {IPPROTO_TCP, TCP_DEFER_ACCEPT},
        {IPPROTO_TCP, TCP_MAXSEG},  {IPPROTO_IP, IP_TOS},        {IPPROTO_IP, IP_TTL}};
    char value[64] = {1};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char line[256] = "";
        for (socklen_t length = 0; length <= 32; length = length ? 2 * length : 1) {
            int done = setsockopt(fd, options[i][0], options[i][1], value, length);
            sprintf(line + strlen(line), " %s", done == 0 ? "0" : strerrorname_np(errno));
        }
        say("%s, set %d %d:%s", state, options[i][0], options[i][1], line);
    }
    struct timeval times[] = {{0, 1000000}, {0, -1}, {-1, 0}, {-1, -1}, {0, 0}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct timeval now = {-7, -7};
        socklen_t length = sizeof now;
        result("SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &times[i], sizeof now));
        getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &now, &length);
        say("  is %d", now.tv_sec == times[i].tv_sec);
    }
}

static void peer_name(int fd) {
    struct sockaddr_in asked, named;
    socklen_t length = sizeof asked;
    result("SO_PEERNAME", getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &asked, &length));
    socklen_t right = sizeof named;
    need(getpeername(fd, (struct sockaddr *)&named, &right) == 0, "getpeername");
    say("length %u, the peer's %d", length, memcmp(&asked, &named, sizeof named) == 0);
}

static void server(void) {
    int fd = listener(16);
    sweep_all("listening", fd);
    int accepted = accept(fd, NULL, NULL);
    sweep_all("accepted", accepted);
    peer_name(accepted);
    meet();
}

static void client(void) {
    int fd = dial();
    sweep_all("connected", fd);
    peer_name(fd);
    meet();
    set_lengths("connected", fd);
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    sweep_all("fresh", fresh);
    set_lengths("fresh", fresh);
}
