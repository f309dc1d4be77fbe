/* pair: datagrams received and sent by every call, in every size, truncated, peeked at, connected and not. */
#include "datagrams.h"

#define LARGE 20000

static void by_every_call(int fd, struct sockaddr_in *client) {
    char text[64] = "", more[64] = "";
    struct sockaddr_in from = {0};
    socklen_t length = sizeof from;
    result("recvfrom", recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&from, &length));
    say("of the client: %d, length %u", !memcmp(&from, client, 8), length);
    result("recv", recv(fd, text, sizeof text, 0));
    result("read", read(fd, text, sizeof text));
    struct iovec pieces[] = {{text, 2}, {more, sizeof more}};
    result("readv", readv(fd, pieces, 2));
    say("pieces %.2s %.3s", text, more);
    struct msghdr message = {.msg_name = &from,
                             .msg_namelen = sizeof from,
                             .msg_iov = pieces,
                             .msg_iovlen = 2};
    result("recvmsg", recvmsg(fd, &message, 0));
    say("name %u flags %x control %zu", message.msg_namelen, message.msg_flags,
        message.msg_controllen);
    length = 3;
    char little[8] = "xxxxxxx";
    result("recvfrom with little room",
           recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)little, &length));
    say("full length %u, written %d", length, little[3] == 'x');
    struct mmsghdr many[4] = {0};
    struct iovec each[4];
    char texts[4][16] = {""};
    for (int i = 0; i < 4; i++) {
        each[i] = (struct iovec){texts[i], sizeof texts[i]};
        many[i].msg_hdr = (struct msghdr){.msg_iov = &each[i], .msg_iovlen = 1};
    }
    meet();
    result("recvmmsg", recvmmsg(fd, many, 3, 0, NULL));
    say("%s %s %s, lengths %u %u %u", texts[0], texts[1], texts[2], many[0].msg_len,
        many[1].msg_len, many[2].msg_len);
    result("recvmmsg for one", recvmmsg(fd, many, 4, MSG_WAITFORONE, NULL));
    result("no more", recvmmsg(fd, many, 4, MSG_DONTWAIT, NULL));
}

static void truncated(int fd) {
    char text[8] = "";
    int waiting = -1;
    wait_for(fd, POLLIN);
    result("FIONREAD", ioctl(fd, FIONREAD, &waiting));
    say("waiting %d", waiting);
    result("peek", recv(fd, text, 4, MSG_PEEK));
    result("peek for the length", recv(fd, text, 4, MSG_PEEK | MSG_TRUNC));
    struct iovec piece = {text, 4};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    result("with little room", recvmsg(fd, &message, 0));
    say("flags %x \"%s\"", message.msg_flags, text);
    result("with the whole length reported", recv(fd, text, 4, MSG_TRUNC));
    result("with no room", recv(fd, text, 0, 0));
    result("of no bytes", recv(fd, text, sizeof text, 0));
    wait_for(fd, POLLIN);
    result("a read of no bytes", read(fd, text, 0));
    say_next("which takes nothing", fd, 0);
    say_next("nothing", fd, MSG_DONTWAIT);
    set_nonblocking(fd);
    say_next("nothing without waiting", fd, 0);
    fcntl(fd, F_SETFL, 0);
}

static void sizes(int fd, struct sockaddr_in *client) {
    static unsigned char bytes[LARGE];
    static const int lengths[] = {0, 1, 1471, 1472, 1473, 4000, LARGE};
    for (int i = 0; i < 7; i++) {
        long got = recv(fd, bytes, sizeof bytes, 0);
        say("%ld bytes, sum %lx", got, checksum(0, bytes, got));
        got = sendto(fd, bytes, lengths[i], 0, (struct sockaddr *)client, sizeof *client);
        result("sent back", got);
    }
}

static void server(void) {
    struct sockaddr_in client;
    int fd = served(&client);
    by_every_call(fd, &client);
    meet();
    truncated(fd);
    meet();
    sizes(fd, &client);
    meet();
    /* Connected to somebody else, it does not take what comes from the client. */
    struct sockaddr_in other = client;
    other.sin_port = htons(ntohs(client.sin_port) ^ 1);
    result("connect", connect(fd, (struct sockaddr *)&other, sizeof other));
    say_next("before the client sends", fd, MSG_DONTWAIT);
    meet();
    hear();
    say_next("from the wrong client", fd, MSG_DONTWAIT);
    result("connect to the client", connect(fd, (struct sockaddr *)&client, sizeof client));
    say_next("before the client sends again", fd, MSG_DONTWAIT);
    meet();
    say_next("from the right client", fd, 0);
    result("send", send(fd, "by peer", 7, 0));
    result("write", write(fd, "written", 7));
    struct sockaddr nobody = {.sa_family = AF_UNSPEC};
    result("dissolved", connect(fd, &nobody, sizeof nobody));
    result("send to no socket", send(fd, "x", 1, 0));
    say("it has a port: %d", port_of(fd) != 0);
    result("close", close(fd));
    meet();
}

static void client(void) {
    struct sockaddr_in server;
    int fd = asking(&server);
    const struct sockaddr *to = (struct sockaddr *)&server;
    socklen_t length = sizeof server;
    send_text(fd, &server, "recvfrom");
    send_text(fd, &server, "recv");
    send_text(fd, &server, "read");
    send_text(fd, &server, "readv");
    struct iovec pieces[] = {{"rec", 3}, {"vmsg", 4}};
    struct msghdr message = {
        .msg_name = &server, .msg_namelen = length, .msg_iov = pieces, .msg_iovlen = 2};
    result("sendmsg", sendmsg(fd, &message, 0));
    result("sendto", sendto(fd, "room", 4, MSG_DONTWAIT, to, length));
    struct mmsghdr many[4] = {0};
    for (int i = 0; i < 4; i++)
        many[i].msg_hdr = message;
    result("sendmmsg", sendmmsg(fd, many, 4, 0));
    meet();
    meet();
    send_text(fd, &server, "little room");
    send_text(fd, &server, "length");
    send_text(fd, &server, "no room");
    result("nothing", sendto(fd, "", 0, 0, to, length));
    send_text(fd, &server, "last");
    meet();
    static unsigned char bytes[LARGE];
    fill(bytes, sizeof bytes, 0);
    static const int lengths[] = {0, 1, 1471, 1472, 1473, 4000, LARGE};
    for (int i = 0; i < 7; i++) {
        result("sent", sendto(fd, bytes, lengths[i], 0, to, length));
        long got = recv(fd, bytes, sizeof bytes, 0);
        say("%ld bytes, sum %lx", got, checksum(0, bytes, got));
    }
    result("too large", sendto(fd, bytes, 70000, 0, to, length));
    result("to no socket", send(fd, bytes, 1, 0));
    struct sockaddr_in wrong = server;
    wrong.sin_port = 0;
    result("to port 0", sendto(fd, "x", 1, 0, (struct sockaddr *)&wrong, sizeof wrong));
    result("with a short name", sendto(fd, "x", 1, 0, to, 4));
    struct sockaddr_in6 other = {.sin6_family = AF_INET6, .sin6_port = server.sin_port};
    other.sin6_addr.s6_addr[0] = 0xfd;
    other.sin6_addr.s6_addr[15] = 1;
    struct sockaddr *far = (struct sockaddr *)&other;
    result("with a name of IPv6", sendto(fd, "x", 1, 0, far, sizeof other));
    memset(&other.sin6_addr, 0, 10);
    memset(&other.sin6_addr.s6_addr[10], 0xff, 2);
    memcpy(&other.sin6_addr.s6_addr[12], &server.sin_addr, 4);
    result("with a mapped one", sendto(fd, "x", 1, 0, far, sizeof other));
    meet();
    meet();
    result("sent to a socket of another", sendto(fd, "wrong", 5, 0, to, length));
    tell(0);
    meet();
    result("connect", connect(fd, to, length));
    result("send", send(fd, "right", 5, 0));
    say_next("answer", fd, 0);
    say_next("another", fd, 0);
    meet();
}
