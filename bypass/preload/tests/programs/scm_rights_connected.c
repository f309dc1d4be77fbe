/* pair: a connected socket passed to another process, which goes on with it. */
#include "contract.h"

static void server(void) {
    int pair[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    if (child == 0) {
        int fd;
        take(pair[1], &fd, 1);
        result("write in the receiver", send(fd, "hello", 5, MSG_NOSIGNAL));
        _exit(0);
    }
    int fd = serve_one();
    hand(pair[0], &fd, 1);
    int status;
    waitpid(child, &status, 0);
    say("child ended %d", status);
    close(fd);
}

static void client(void) {
    int fd = dial();
    char buffer[8] = "";
    result("read", recv(fd, buffer, 5, MSG_WAITALL));
    say("read %s", buffer);
}
