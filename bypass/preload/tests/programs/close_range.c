/* pair: close_range and closefrom close connections too, and CLOEXEC only marks them. */
#include <linux/close_range.h>
#include "contract.h"

static void server(void) {
    int listening = listener(8);
    for (int i = 0; i < 3; i++) {
        int fd = accept(listening, NULL, NULL);
        char byte;
        result("end", read(fd, &byte, 1));
        close(fd);
    }
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    result("mark", close_range(fd, fd, CLOSE_RANGE_CLOEXEC));
    say("cloexec %d", fcntl(fd, F_GETFD));
    result("close_range", close_range(fd, fd, 0));
    result("it is closed", fcntl(fd, F_GETFD));
    result("an empty range", close_range(5, 4, 0));
    fd = dial_port(port);
    int copy = fcntl(fd, F_DUPFD, 60);
    result("close_range of both", close_range(fd, copy, 0));
    result("closed", send(copy, "x", 1, MSG_NOSIGNAL));
    fd = dial_port(port);
    closefrom(fd);
    result("closed", send(fd, "x", 1, MSG_NOSIGNAL));
}
