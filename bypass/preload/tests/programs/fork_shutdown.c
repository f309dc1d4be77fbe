/* pair: shutdown concerns the connection, whichever of the processes that hold it calls it. */
#include "contract.h"

static void server(void) {
    int fd = serve_one(), status, go[2], said[2];
    need(pipe(go) == 0 && pipe(said) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        char byte;
        /* The parent shuts down while this one is blocked, or just before. */
        write_all(go[1], "g", 1);
        ssize_t got = read(fd, &byte, 1);
        read_all(said[0], &byte, 1);
        result("blocked read", got);
        result("another", read(fd, &byte, 1));
        write_all(go[1], "h", 1);
        read_all(said[0], &byte, 1);
        result("write", send(fd, "x", 1, MSG_NOSIGNAL));
        exit(0);
    }
    char byte;
    read_all(go[0], &byte, 1);
    usleep(30000);
    result("shutdown for reading", shutdown(fd, SHUT_RD));
    write_all(said[1], "s", 1);
    read_all(go[0], &byte, 1);
    result("shutdown for writing", shutdown(fd, SHUT_WR));
    write_all(said[1], "s", 1);
    waitpid(child, &status, 0);
    say("status %d", status);
    result("write", send(fd, "x", 1, MSG_NOSIGNAL));
    meet();
}

static void client(void) {
    int fd = dial();
    char byte;
    result("end", read(fd, &byte, 1));
    meet();
}
