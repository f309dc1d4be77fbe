/* pair: a connected socket passed to another process, which goes on with it. */
#include "contract.h"

static void server(void) {
    int pair[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    char byte = 'f', space[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    if (child == 0) {
        need(recvmsg(pair[1], &message, 0) == 1, "recvmsg");
        int fd;
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
        result("write in the receiver", send(fd, "hello", 5, MSG_NOSIGNAL));
        _exit(0);
    }
    int fd = serve_one();
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    need(sendmsg(pair[0], &message, 0) == 1, "sendmsg");
    int status;
    waitpid(child, &status, 0);
    say("child ended %d", status);
    close(fd);
}

static void client(void) {
    int fd = dial();
    char buffer[8] = "";
    result("read", recv(fd, buffer, 5, MSG_WAITALL));
    say("read %s", buffer);
}
