/* pair: MSG_PEEK with MSG_WAITALL waits for all of it and takes nothing. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    char text[16] = "";
    write_all(fd, "12", 2);
    hear();
    usleep(30000);
    write_all(fd, "34", 2);
    usleep(30000);
    write_all(fd, "5678", 4);
    hear();
    write_all(fd, "ab", 2);
    hear();
    shutdown(fd, SHUT_WR);
    result("the end", read(fd, text, 1));
}

static void client(void) {
    int fd = dial();
    char text[16] = "";
    wait_for(fd, POLLIN);
    result("without waiting", recv(fd, text, 8, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT));
    tell(0);
    result("peek", recv(fd, text, 8, MSG_PEEK | MSG_WAITALL));
    say("%s", text);
    result("again", recv(fd, text, 4, MSG_PEEK | MSG_WAITALL));
    memset(text, 0, sizeof text);
    result("read", recv(fd, text, 8, MSG_WAITALL));
    say("%s", text);
    tell(0);
    wait_for(fd, POLLIN);
    struct timeval time = {.tv_usec = 50000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    result("up to a timeout", recv(fd, text, 8, MSG_PEEK | MSG_WAITALL));
    tell(0);
    wait_for(fd, POLLRDHUP);
    result("up to the end", recv(fd, text, 8, MSG_PEEK | MSG_WAITALL));
    result("read", recv(fd, text, 8, MSG_WAITALL));
    result("nothing left", recv(fd, text, 8, MSG_PEEK | MSG_WAITALL));
}
