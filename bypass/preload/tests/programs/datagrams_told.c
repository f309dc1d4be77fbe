/* pair: what control data reports of received datagrams, and asks for on sent ones. */
#include "datagrams.h"

static void say_control(int fd, size_t room) {
    char text[16], space[256];
    struct sockaddr_in from;
    struct iovec piece = {text, sizeof text};
    struct msghdr message = {.msg_name = &from,
                             .msg_namelen = sizeof from,
                             .msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = space,
                             .msg_controllen = room};
    result("recvmsg", recvmsg(fd, &message, 0));
    say("control %zu flags %x", message.msg_controllen, message.msg_flags);
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
        const unsigned char *data = CMSG_DATA(part);
        int value = 0;
        if (part->cmsg_type == IP_PKTINFO && part->cmsg_len >= CMSG_LEN(12)) {
            struct in_pktinfo info;
            memcpy(&info, data, sizeof info);
            say("IP_PKTINFO %zu to %s, local %d, interface %d", (size_t)part->cmsg_len,
                inet_ntoa(info.ipi_addr), info.ipi_addr.s_addr == info.ipi_spec_dst.s_addr,
                info.ipi_ifindex > 0);
        } else {
            memcpy(&value, data, part->cmsg_len - CMSG_LEN(0) < 4 ? 1 : 4);
            say("level %d type %d length %zu value %d", part->cmsg_level, part->cmsg_type,
                (size_t)part->cmsg_len, value);
        }
    }
}

static void server(void) {
    struct sockaddr_in client;
    int fd = served(&client);
    set_int(fd, IPPROTO_IP, IP_PKTINFO, 1);
    say_next("nothing", fd, MSG_DONTWAIT);
    meet();
    say_control(fd, 256);
    say_control(fd, 0);
    say_control(fd, CMSG_LEN(4));
    set_int(fd, IPPROTO_IP, IP_RECVTTL, 1);
    set_int(fd, IPPROTO_IP, IP_RECVTOS, 1);
    say_next("nothing", fd, MSG_DONTWAIT);
    meet();
    say_control(fd, 256);
    say_control(fd, 256);
    say_control(fd, CMSG_SPACE(sizeof(struct in_pktinfo)) + CMSG_SPACE(4));
    set_int(fd, IPPROTO_IP, IP_PKTINFO, 0);
    set_int(fd, IPPROTO_IP, IP_RECVTTL, 0);
    say_next("nothing", fd, MSG_DONTWAIT);
    meet();
    say_control(fd, 256);
    set_int(fd, IPPROTO_IP, IP_RECVTTL, 1);
    say_next("nothing", fd, MSG_DONTWAIT);
    meet();
    say_control(fd, 256);
    say_control(fd, 256);
    /* An option that only the kernel can obey. */
    set_int(fd, SOL_SOCKET, SO_TIMESTAMP, 1);
    meet();
    wait_for(fd, POLLIN);
    char text[16], space[256];
    struct iovec piece = {text, sizeof text};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = space,
                             .msg_controllen = sizeof space};
    result("recvmsg", recvmsg(fd, &message, 0));
    say("a time was reported: %d", CMSG_FIRSTHDR(&message)->cmsg_type == SCM_TIMESTAMP);
    meet();
}

static void client(void) {
    struct sockaddr_in server;
    int fd = asking(&server);
    meet();
    send_text(fd, &server, "one");
    send_text(fd, &server, "two");
    send_text(fd, &server, "three");
    meet();
    send_text(fd, &server, "four");
    set_int(fd, IPPROTO_IP, IP_TOS, 0x28);
    set_int(fd, IPPROTO_IP, IP_TTL, 33);
    send_text(fd, &server, "five");
    send_text(fd, &server, "six");
    meet();
    char space[CMSG_SPACE(4)] = "";
    struct iovec piece = {"seven", 5};
    struct msghdr message = {.msg_name = &server,
                             .msg_namelen = sizeof server,
                             .msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = space,
                             .msg_controllen = sizeof space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){CMSG_LEN(4), IPPROTO_IP, IP_TOS};
    *(int *)CMSG_DATA(header) = 0x48;
    result("sendmsg", sendmsg(fd, &message, 0));
    meet();
    char more[CMSG_SPACE(sizeof(struct in_pktinfo)) + 2 * CMSG_SPACE(4)] = "";
    message.msg_control = more;
    message.msg_controllen = sizeof more;
    header = CMSG_FIRSTHDR(&message);
    *header = (struct cmsghdr){CMSG_LEN(sizeof(struct in_pktinfo)), IPPROTO_IP, IP_PKTINFO};
    header = CMSG_NXTHDR(&message, header);
    *header = (struct cmsghdr){CMSG_LEN(4), IPPROTO_IP, IP_TTL};
    *(int *)CMSG_DATA(header) = 44;
    header = (struct cmsghdr *)((char *)header + CMSG_SPACE(4));
    *header = (struct cmsghdr){CMSG_LEN(1), IPPROTO_IP, IP_TOS};
    *CMSG_DATA(header) = 0x68;
    result("with three parts", sendmsg(fd, &message, 0));
    result("the same", sendmsg(fd, &message, 0));
    *(int *)CMSG_DATA(CMSG_NXTHDR(&message, CMSG_FIRSTHDR(&message))) = 256;
    result("too long a life", sendmsg(fd, &message, 0));
    struct in_pktinfo info = {.ipi_spec_dst.s_addr = htonl(0x01020304)};
    *(int *)CMSG_DATA(CMSG_NXTHDR(&message, CMSG_FIRSTHDR(&message))) = 44;
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &info, sizeof info);
    outcome("from an address of another", sendmsg(fd, &message, 0));
    info = (struct in_pktinfo){.ipi_ifindex = 1};
    memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &info, sizeof info);
    outcome("by another interface", sendmsg(fd, &message, 0));
    header->cmsg_len = 3;
    result("malformed", sendmsg(fd, &message, 0));
    meet();
    send_text(fd, &server, "eight");
    meet();
}
