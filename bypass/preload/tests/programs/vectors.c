/* pair: readv, writev, sendmsg, recvmsg and their many-message forms. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    struct iovec pieces[] = {{"one ", 4}, {"", 0}, {"two ", 4}, {"three", 5}};
    result("writev", writev(fd, pieces, 4));
    result("writev of nothing", writev(fd, pieces, 0));
    static struct iovec many[1100];
    for (int i = 0; i < 1100; i++)
        many[i] = (struct iovec){"m", 1};
    result("writev of too many", writev(fd, many, 1025));
    result("writev of 1024", writev(fd, many, 1024));
    struct iovec huge[] = {{"x", SIZE_MAX / 2}, {"x", SIZE_MAX / 2}};
    result("writev of too much", writev(fd, huge, 2));
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 4};
    result("sendmsg", sendmsg(fd, &message, MSG_NOSIGNAL));
    struct mmsghdr two[] = {{.msg_hdr = message}, {.msg_hdr = message}};
    result("sendmmsg", sendmmsg(fd, two, 2, 0));
    say("lengths %u %u", two[0].msg_len, two[1].msg_len);
    struct sockaddr_in name = ipv4("127.0.0.1", 9);
    result("sendto with a name", sendto(fd, "!", 1, 0, (struct sockaddr *)&name, sizeof name));
    result("send of nothing", send(fd, "", 0, 0));
    result("lseek", lseek(fd, 0, SEEK_CUR));
    result("pwrite", pwrite(fd, "x", 1, 0));
    result("pread", pread(fd, &message, 1, 0));
    close(fd);
}

static void wait_for_bytes(int fd, int wanted) {
    int there = 0;
    while (there < wanted) {
        wait_for(fd, POLLIN);
        need(ioctl(fd, FIONREAD, &there) == 0, "FIONREAD");
    }
}

static void client(void) {
    int fd = dial();
    char a[5] = "", b[9] = "", rest[1100] = "";
    struct iovec pieces[] = {{a, 4}, {b, 8}, {rest, 1}};
    wait_for_bytes(fd, 13);
    result("readv", readv(fd, pieces, 3));
    say("%s|%s|%.1s", a, b, rest);
    read_all(fd, rest, 1024);
    wait_for_bytes(fd, 13);
    struct sockaddr_in name;
    char control[64];
    struct msghdr message = {.msg_iov = pieces,
                             .msg_iovlen = 3,
                             .msg_name = &name,
                             .msg_namelen = sizeof name,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    result("recvmsg", recvmsg(fd, &message, 0));
    say("name length %u control %zu flags %d", message.msg_namelen, message.msg_controllen,
        message.msg_flags);
    wait_for_bytes(fd, 27);
    struct mmsghdr two[] = {{.msg_hdr = {.msg_iov = pieces, .msg_iovlen = 1}},
                            {.msg_hdr = {.msg_iov = pieces + 1, .msg_iovlen = 1}}};
    result("recvmmsg", recvmmsg(fd, two, 2, 0, NULL));
    say("lengths %u %u: %s|%s", two[0].msg_len, two[1].msg_len, a, b);
    socklen_t length = sizeof name;
    result("recvfrom", recvfrom(fd, rest, 15, MSG_WAITALL, (struct sockaddr *)&name, &length));
    say("name length %u", length);
    result("the end", readv(fd, pieces, 3));
}
