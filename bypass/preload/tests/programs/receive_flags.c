/* pair: MSG_PEEK, MSG_DONTWAIT, MSG_WAITALL, MSG_TRUNC and FIONREAD. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    meet();
    write_all(fd, "0123456789", 10);
    meet();
    hear();
    write_all(fd, "abc", 3);
    hear();
    write_all(fd, "defgh", 5);
    hear();
    write_all(fd, "short", 5);
    close(fd);
}

static int waiting(int fd) {
    int bytes = -1;
    need(ioctl(fd, FIONREAD, &bytes) == 0, "FIONREAD");
    return bytes;
}

static void client(void) {
    char buffer[32];
    int fd = dial();
    result("MSG_DONTWAIT on nothing", recv(fd, buffer, 4, MSG_DONTWAIT));
    result("MSG_PEEK|MSG_DONTWAIT on nothing", recv(fd, buffer, 4, MSG_PEEK | MSG_DONTWAIT));
    say("FIONREAD %d", waiting(fd));
    meet();
    meet();
    wait_for(fd, POLLIN);
    say("FIONREAD %d", waiting(fd));
    result("peek", recv(fd, buffer, 4, MSG_PEEK));
    say("peeked %.4s", buffer);
    result("peek more", recv(fd, buffer, sizeof buffer, MSG_PEEK));
    result("read", recv(fd, buffer, 4, 0));
    say("read %.4s, FIONREAD %d", buffer, waiting(fd));
    result("discard with MSG_TRUNC", recv(fd, buffer, 3, MSG_TRUNC));
    result("MSG_DONTWAIT", recv(fd, buffer, 32, MSG_DONTWAIT));
    say("read %.3s", buffer);
    tell(0);
    wait_for(fd, POLLIN);
    tell(0);
    result("MSG_WAITALL", recv(fd, buffer, 8, MSG_WAITALL));
    say("read %.8s", buffer);
    tell(0);
    result("MSG_WAITALL until the end", recv(fd, buffer, 20, MSG_WAITALL));
    result("read at the end", recv(fd, buffer, 20, MSG_WAITALL));
    say("FIONREAD %d", waiting(fd));
}
