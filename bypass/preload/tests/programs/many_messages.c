/* pair: more messages in one sendmmsg than the kernel takes in a call. */
#include "contract.h"

#define COUNT 2000

static void server(void) {
    int fd = serve_one();
    static char buffer[COUNT];
    read_all(fd, buffer, 1024);
    meet();
    say_poll("no more than was said", fd, POLLIN, 50);
    meet();
}

static void client(void) {
    int fd = dial();
    static struct mmsghdr messages[COUNT];
    static struct iovec pieces[COUNT];
    for (int i = 0; i < COUNT; i++) {
        pieces[i] = (struct iovec){"m", 1};
        messages[i].msg_hdr.msg_iov = &pieces[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    result("sendmmsg", sendmmsg(fd, messages, COUNT, 0));
    meet();
    meet();
}
