/* pair: messages with connections in them that are looked at (MSG_PEEK) before they are received, and messages for which
 * there is too little room: of a connection that does not come through, the end comes when its sender has ended. */
#include "contract.h"

/* Receives with room for so many descriptors; the flags that the kernel reports. */
static int receive(int over, int flags, int room, int *fds) {
    char byte, space[CMSG_SPACE(sizeof(int) * PASSED_MAX)] = "";
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = space,
                             .msg_controllen = room ? CMSG_LEN(sizeof(int) * room) : 0};
    need(recvmsg(over, &message, flags) == 1, "recvmsg");
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header)
        memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    say("received %zu bytes of control, flags %x", header ? (size_t)header->cmsg_len : 0,
        (unsigned)message.msg_flags);
    return message.msg_flags;
}

static void look_twice(int over) {
    int fds[4];
    receive(over, MSG_PEEK, 0, fds);
    receive(over, MSG_PEEK, 1, &fds[0]);
    result("write by the first look", send(fds[0], "one.", 4, MSG_NOSIGNAL));
    close(fds[0]);
    receive(over, MSG_PEEK, 1, &fds[1]);
    receive(over, 0, 1, &fds[2]);
    result("write by the second look", send(fds[1], "two.", 4, MSG_NOSIGNAL));
    close(fds[1]);
    result("write by what was received", send(fds[2], "thr.", 4, MSG_NOSIGNAL));
    close(fds[2]);
}

static void receive_one_of_two(int over) {
    int fd;
    receive(over, 0, 1, &fd);
    result("write by the one that came", send(fd, "came", 4, MSG_NOSIGNAL));
    close(fd);
    write_all(over, "r", 1);
}

static void server(void) {
    int pair[2], fds[2], status;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    int listening = listener(16);
    pid_t sender = fork();
    if (sender == 0) {
        fds[0] = accept(listening, NULL, NULL);
        hand(pair[0], fds, 1);
        close(fds[0]);
        for (int i = 0; i < 2; i++)
            fds[i] = accept(listening, NULL, NULL);
        hand(pair[0], fds, 2);
        char byte;
        read_all(pair[0], &byte, 1);
        /* exit would wait for the one that does not come through. */
        _exit(0);
    }
    close(listening);
    look_twice(pair[1]);
    receive_one_of_two(pair[1]);
    need(waitpid(sender, &status, 0) == sender, "waitpid");
    say("the sender has status %d", status);
}

static void read_to_the_end(int fd) {
    char text[16] = "";
    result("read", recv(fd, text, 12, MSG_WAITALL));
    say("%s", text);
    result("the end", recv(fd, text, 1, 0));
}

static void client(void) {
    int port = hear(), fds[3];
    read_to_the_end(fds[0] = dial_port(port));
    for (int i = 1; i < 3; i++)
        fds[i] = dial_port(port);
    read_to_the_end(fds[1]);
    read_to_the_end(fds[2]);
}
