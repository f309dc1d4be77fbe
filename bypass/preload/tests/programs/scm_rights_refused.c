/* pair: messages with a connection in them that are not sent, because no process reads: its end comes when
 * it is closed, and not when a process might have received it. */
#include "contract.h"

static int try_to_hand(int over, int fd) {
    char byte = 'f', space[CMSG_SPACE(sizeof fd)] = "";
    struct iovec piece = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(over, &message, MSG_DONTWAIT);
}

static void server(void) {
    int fd = serve_one(), pair[2];
    char block[4096] = "";
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    while (send(pair[0], block, sizeof block, MSG_DONTWAIT) > 0)
        ;
    while (send(pair[0], block, 1, MSG_DONTWAIT) > 0)
        ;
    for (int i = 0; i < 3; i++)
        result("sendmsg", try_to_hand(pair[0], fd));
    close(fd);
    meet();
}

static void client(void) {
    int fd = dial();
    struct timeval patience = {LONG_S, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    char byte;
    result("end", read(fd, &byte, 1));
    meet();
}
