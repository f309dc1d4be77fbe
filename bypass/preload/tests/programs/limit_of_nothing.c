/* pair: calls that wait, in a process that may have no more descriptors at all (RLIMIT_NOFILE 0), with which
 * poll(2) takes none. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    for (int i = 0; i < 4; i++) {
        meet();
        usleep(20000);
        write_all(fd, "x", 1);
    }
    hear();
}

static void client(void) {
    int fd = dial();
    struct rlimit nothing = {0, 0};
    char byte = 0;
    fd_set set;
    need(setrlimit(RLIMIT_NOFILE, &nothing) == 0, "setrlimit");
    meet();
    result("look", recv(fd, &byte, 1, MSG_PEEK));
    result("read", read(fd, &byte, 1));
    meet();
    result("read", read(fd, &byte, 1));
    meet();
    FD_ZERO(&set);
    FD_SET(fd, &set);
    result("select", select(fd + 1, &set, NULL, NULL, &(struct timeval){LONG_S, 0}));
    result("read", read(fd, &byte, 1));
    struct timeval wait = {.tv_usec = 30000};
    need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0, "SO_RCVTIMEO");
    result("in time", read(fd, &byte, 1));
    wait.tv_usec = 0;
    need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0, "SO_RCVTIMEO");
    meet();
    result("look at all", recv(fd, &byte, 1, MSG_PEEK | MSG_WAITALL));
    tell(0);
}
