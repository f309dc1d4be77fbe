/* pair: parent and child each use an inherited connection in turn, with large messages. */
#include "contract.h"

#define LENGTH 200000

static void server(void) {
    int fd = serve_one();
    static unsigned char buffer[LENGTH];
    for (int turn = 0; turn < 4; turn++) {
        pid_t child = turn % 2 ? fork() : -1;
        if (turn % 2 && child > 0) {
            int status;
            waitpid(child, &status, 0);
            say("turn %d: child %d", turn, status);
            continue;
        }
        read_all(fd, buffer, LENGTH);
        say("turn %d: %016lx", turn, checksum(0, buffer, LENGTH));
        write_all(fd, buffer, LENGTH);
        if (turn % 2)
            _exit(0);
    }
}

static void client(void) {
    int fd = dial();
    static unsigned char sent[LENGTH], got[LENGTH];
    for (int turn = 0; turn < 4; turn++) {
        fill(sent, LENGTH, turn * LENGTH);
        write_all(fd, sent, LENGTH);
        read_all(fd, got, LENGTH);
        say("turn %d: same %d", turn, memcmp(sent, got, LENGTH) == 0);
    }
}
