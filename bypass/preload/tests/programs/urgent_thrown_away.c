/* pair: bytes that are thrown away up to an urgent one, and behind it, and how many there are. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    need(send(fd, "abc", 3, MSG_OOB) == 3, "send");
    write_all(fd, "de", 2);
    meet();
    meet();
}

static void say_waiting(int fd) {
    int waiting = -1;
    need(ioctl(fd, FIONREAD, &waiting) == 0, "FIONREAD");
    say("%d wait", waiting);
}

static void client(void) {
    int fd = dial();
    char bytes[8];
    meet();
    say_waiting(fd);
    result("thrown away", recv(fd, NULL, 8, MSG_TRUNC));
    say_waiting(fd);
    result("thrown away", recv(fd, NULL, 8, MSG_TRUNC));
    say_waiting(fd);
    result("fetched", recv(fd, bytes, 1, MSG_OOB));
    meet();
}
