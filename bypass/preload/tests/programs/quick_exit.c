/* pair: a process that has passed a connection on ends by quick_exit before it is received. */
#include "contract.h"

static void server(void) {
    int pair[2], status, fd;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t sender = fork();
    if (sender == 0) {
        fd = serve_one();
        hand(pair[0], &fd, 1);
        quick_exit(0);
    }
    wait_for(pair[1], POLLIN);
    /* One that does not wait has ended by then. */
    for (int i = 0; i < 100 && thread_state(sender) != 'Z'; i++)
        usleep(1000);
    take(pair[1], &fd, 1);
    result("send", send(fd, "t", 1, MSG_NOSIGNAL));
    need(waitpid(sender, &status, 0) == sender, "waitpid");
    say("ended %d", status);
    hear();
}

static void client(void) {
    char byte;
    int fd = dial();
    result("read", read(fd, &byte, 1));
    tell(0);
}
