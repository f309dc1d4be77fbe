/* pair: MSG_FASTOPEN connects and sends in one call, without a connect before. */
#include "contract.h"

static void server(void) {
    int listening = listener(4);
    for (int i = 0; i < 2; i++) {
        char buffer[8] = "";
        int fd = accept(listening, NULL, NULL);
        read_all(fd, buffer, 4);
        say("read %.4s", buffer);
        write_all(fd, "back", 4);
        close(fd);
    }
}

static void client(void) {
    struct sockaddr_in name = ipv4("127.0.0.1", hear());
    for (int i = 0; i < 2; i++) {
        char buffer[8] = "";
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct iovec piece = {"ping", 4};
        struct msghdr message = {.msg_name = &name,
                                 .msg_namelen = sizeof name,
                                 .msg_iov = &piece,
                                 .msg_iovlen = 1};
        if (i == 0)
            result("sendto", sendto(fd, "ping", 4, MSG_FASTOPEN, (void *)&name, sizeof name));
        else
            result("sendmsg", sendmsg(fd, &message, MSG_FASTOPEN));
        read_all(fd, buffer, 4);
        say("read %.4s", buffer);
        result("end", read(fd, buffer, 1));
        close(fd);
    }
}
