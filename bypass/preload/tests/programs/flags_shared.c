/* pair: O_NONBLOCK set by a child is seen by its parent, and the other way round. */
#include "contract.h"

static int is_nonblocking(int fd) { return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

static void in_child(int fd, int flags) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        fcntl(fd, F_SETFL, flags);
        _exit(0);
    }
    waitpid(child, &status, 0);
}

static void server(void) {
    int listening = listener(4), fd = accept(listening, NULL, NULL);
    char byte;
    in_child(fd, O_RDWR | O_NONBLOCK);
    say("connection %d", is_nonblocking(fd));
    result("read", read(fd, &byte, 1));
    in_child(fd, O_RDWR);
    say("connection %d", is_nonblocking(fd));
    tell(0);
    result("read", read(fd, &byte, 1));
    in_child(listening, O_RDWR | O_NONBLOCK);
    say("listener %d", is_nonblocking(listening));
    result("accept", accept(listening, NULL, NULL));
    int on = 1;
    ioctl(fd, FIONBIO, &on);
    pid_t child = fork();
    int status;
    if (child == 0) {
        say("in the child %d", is_nonblocking(fd));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, &status, 0);
}

static void client(void) {
    int fd = dial();
    hear();
    usleep(20000);
    write_all(fd, "x", 1);
    result("the end", read(fd, &(char){0}, 1));
}
