/* pair: a listener passed to another process over a Unix socket, which then accepts. */
#include "contract.h"

static void pass(int over, int fd) {
    char byte = 'f', space[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    need(sendmsg(over, &message, 0) == 1, "sendmsg");
}

static int take(int over) {
    char byte, space[CMSG_SPACE(sizeof(int))];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    need(recvmsg(over, &message, 0) == 1, "recvmsg");
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static void server(void) {
    int pair[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    if (child == 0) {
        int listening = take(pair[1]);
        int fd = accept(listening, NULL, NULL);
        char buffer[8];
        read_all(fd, buffer, 4);
        say("child read %.4s", buffer);
        write_all(fd, "back", 4);
        _exit(0);
    }
    int listening = listener_on("127.0.0.1", 4);
    pass(pair[0], listening);
    int port = port_of(listening);
    close(listening);
    tell(port);
    int status;
    waitpid(child, &status, 0);
    say("child ended %d", status);
}

static void client(void) {
    int fd = dial();
    char buffer[8];
    write_all(fd, "ping", 4);
    read_all(fd, buffer, 4);
    say("read %.4s", buffer);
}
