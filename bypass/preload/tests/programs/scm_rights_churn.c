/* pair: connections sent away right after their listener was closed, again and again: descriptor
 * numbers of what was closed are used again at once, while others still look at them. */
#include "contract.h"

#define ROUNDS 150

static void worker(int over) {
    int good = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int fd;
        take(over, &fd, 1);
        good += send(fd, "hello", 5, MSG_NOSIGNAL) == 5;
        close(fd);
        write_all(over, "t", 1);
    }
    say("written by the receiver %d", good);
}

static void server(void) {
    int pair[2], status;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    if (child == 0) {
        worker(pair[1]);
        _exit(0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        char byte;
        int fd = serve_one();
        hand(pair[0], &fd, 1);
        /* The receiver takes the connection from us: only then may our end go. */
        read_all(pair[0], &byte, 1);
        close(fd);
    }
    waitpid(child, &status, 0);
    say("child ended %d", status);
}

static void client(void) {
    int good = 0;
    for (int i = 0; i < ROUNDS; i++) {
        char text[8] = "";
        int fd = dial();
        good += recv(fd, text, 5, MSG_WAITALL) == 5 && strcmp(text, "hello") == 0;
        good += recv(fd, text, 1, 0) == 0;
        close(fd);
    }
    say("read and ended %d", good);
}
