/* pair: what a name server does: UDP at the port of its TCP listener, the address that was asked, a group, fragments. */
#include "contract.h"

#define GROUP "239.79.0.1"
#define LARGE 4000

/* Both at one port: one that is free for TCP may be another program's for UDP. */
static int open_both(int *listening) {
    for (;;) {
        *listening = listener_on("127.0.0.1", 4);
        int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
        need(fd >= 0, "socket");
        struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(port_of(*listening))};
        if (bind(fd, (struct sockaddr *)&any, sizeof any) == 0) {
            result("IP_PKTINFO", setsockopt(fd, SOL_IP, IP_PKTINFO, &on, sizeof on));
            return fd;
        }
        need(errno == EADDRINUSE, "bind");
        close(fd);
        close(*listening);
    }
}

/* Receives one datagram and says where it was sent to. */
static void hear_datagram(const char *what, int fd, struct sockaddr_in *from) {
    static char buffer[LARGE + 1];
    char control[256];
    struct iovec piece = {buffer, sizeof buffer};
    struct msghdr message = {.msg_name = from, .msg_namelen = sizeof *from, .msg_iov = &piece, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    wait_for(fd, POLLIN);
    ssize_t got = recvmsg(fd, &message, 0);
    result(what, got);
    struct cmsghdr *first = CMSG_FIRSTHDR(&message);
    if (first && first->cmsg_level == SOL_IP && first->cmsg_type == IP_PKTINFO) {
        struct in_pktinfo info;
        memcpy(&info, CMSG_DATA(first), sizeof info);
        struct in_addr group, own = ipv4("127.0.0.1", 0).sin_addr;
        inet_pton(AF_INET, GROUP, &group);
        say("to our address %d, to the group %d, over an interface %d", info.ipi_addr.s_addr == own.s_addr,
            info.ipi_addr.s_addr == group.s_addr, info.ipi_ifindex > 0);
    }
}

/* Answers from the address that was asked. */
static void answer(int fd, const struct sockaddr_in *to, size_t length) {
    static char bytes[LARGE];
    union {
        char bytes[CMSG_SPACE(sizeof(struct in_pktinfo))];
        struct cmsghdr header;
    } control = {0};
    struct iovec piece = {bytes, length};
    struct msghdr message = {.msg_name = (void *)to, .msg_namelen = sizeof *to, .msg_iov = &piece, .msg_iovlen = 1,
                             .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    struct cmsghdr *first = CMSG_FIRSTHDR(&message);
    first->cmsg_level = SOL_IP;
    first->cmsg_type = IP_PKTINFO;
    first->cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo));
    struct in_pktinfo info = {.ipi_spec_dst = ipv4("127.0.0.1", 0).sin_addr};
    memcpy(CMSG_DATA(first), &info, sizeof info);
    result("sendmsg", sendmsg(fd, &message, 0));
}

static void server(void) {
    int listening, fd = open_both(&listening), port = port_of(listening);
    struct ip_mreq member = {.imr_interface = ipv4("127.0.0.1", 0).sin_addr};
    inet_pton(AF_INET, GROUP, &member.imr_multiaddr);
    result("IP_ADD_MEMBERSHIP", setsockopt(fd, SOL_IP, IP_ADD_MEMBERSHIP, &member, sizeof member));
    tell(port);
    int stream = accept(listening, NULL, NULL);
    outcome("accept", stream);

    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    result("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    event.data.fd = stream;
    result("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, stream, &event));
    result("epoll_wait", epoll_wait(set, &event, 1, LONG_MS));
    say("of the datagram %d", event.data.fd == fd);

    struct sockaddr_in from;
    hear_datagram("a question", fd, &from);
    answer(fd, &from, 100);
    hear_datagram("a large one", fd, &from);
    answer(fd, &from, LARGE);
    hear_datagram("one to the group", fd, &from);
    answer(fd, &from, 1);
    result("IP_DROP_MEMBERSHIP", setsockopt(fd, SOL_IP, IP_DROP_MEMBERSHIP, &member, sizeof member));

    /* Truncated over UDP, a question comes again over TCP. */
    result("epoll_wait", epoll_wait(set, &event, 1, LONG_MS));
    say("of the stream %d", event.data.fd == stream);
    char byte;
    result("read", read(stream, &byte, 1));
    result("write", write(stream, "!", 1));
    meet();
}

static void client(void) {
    int port = hear();
    int stream = dial_port(port);
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", port), own, from;
    socklen_t length = sizeof own;
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    result("getsockname", getsockname(fd, (struct sockaddr *)&own, &length));
    static char bytes[LARGE];
    result("ask", send(fd, bytes, 50, 0));
    wait_for(fd, POLLIN);
    result("answer", recv(fd, bytes, LARGE, 0));
    result("ask much", send(fd, bytes, LARGE, 0));
    wait_for(fd, POLLIN);
    result("answer", recv(fd, bytes, LARGE, 0));

    int all = socket(AF_INET, SOCK_DGRAM, 0);
    result("IP_MULTICAST_IF", setsockopt(all, SOL_IP, IP_MULTICAST_IF, &own.sin_addr, sizeof own.sin_addr));
    struct sockaddr_in group = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, GROUP, &group.sin_addr);
    result("to the group", sendto(all, "?", 1, 0, (struct sockaddr *)&group, sizeof group));
    wait_for(all, POLLIN);
    length = sizeof from;
    result("answer", recvfrom(all, bytes, LARGE, 0, (struct sockaddr *)&from, &length));
    say("from the server %d", from.sin_addr.s_addr == name.sin_addr.s_addr && from.sin_port == name.sin_port);

    result("write", write(stream, "?", 1));
    result("read", read(stream, bytes, 1));
    meet();
}
