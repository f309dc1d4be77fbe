/* pair: MSG_ZEROCOPY: a socket that was made for it reports each completion, another copies. */
#include "contract.h"
#include <linux/errqueue.h>

#ifndef SO_ZEROCOPY
#define SO_ZEROCOPY 60
#endif
#ifndef MSG_ZEROCOPY
#define MSG_ZEROCOPY 0x4000000
#endif

static void server(void) {
    int listening = listener(16);
    char bytes[8];
    for (int i = 0; i < 2; i++) {
        int fd = accept(listening, NULL, NULL);
        result("received", recv(fd, bytes, 5, MSG_WAITALL));
        meet();
        close(fd);
    }
}

static void client(void) {
    int port = hear(), one = 1;
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    result("SO_ZEROCOPY", setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one));
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    result("send", send(fd, "hello", 5, MSG_ZEROCOPY));
    wait_for(fd, POLLERR);
    char space[256], byte;
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = space,
                             .msg_controllen = sizeof space};
    result("completion", recvmsg(fd, &message, MSG_ERRQUEUE));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header) {
        struct sock_extended_err told;
        memcpy(&told, CMSG_DATA(header), sizeof told);
        say("of zero copy %d, from %u to %u", told.ee_origin == SO_EE_ORIGIN_ZEROCOPY, told.ee_info,
            told.ee_data);
    }
    meet();
    int other = dial_port(port);
    result("send without the option", send(other, "hello", 5, MSG_ZEROCOPY));
    message.msg_controllen = sizeof space;
    result("no completion", recvmsg(other, &message, MSG_ERRQUEUE | MSG_DONTWAIT));
    meet();
}
