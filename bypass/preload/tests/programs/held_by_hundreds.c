/* pair: a connection that hundreds of processes hold is open as long as one of them lives, and ends with the last, also if
 * all are killed. */
#include "contract.h"

#define CHILDREN 300

/* The one that gets a byte serves a letter. */
static void hold(int fd, int turn) {
    char letter;
    need(read(turn, &letter, 1) == 1, "turn");
    need(read(fd, &letter, 1) == 1, "read");
    write_all(fd, &letter, 1);
    pause();
}

static void end(pid_t child) {
    need(kill(child, SIGKILL) == 0, "kill");
    need(waitpid(child, NULL, 0) == child, "waitpid");
}

static void server(void) {
    int fd = serve_one(), turn[2];
    pid_t children[CHILDREN];
    need(pipe(turn) == 0, "pipe");
    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        need(children[i] >= 0, "fork");
        if (children[i] == 0)
            hold(fd, turn[0]);
    }
    close(fd);
    for (int i = 0; i < CHILDREN - 1; i++)
        end(children[i]);
    write_all(turn[1], "t", 1);
    hear();
    end(children[CHILDREN - 1]);
}

static void client(void) {
    int fd = dial();
    char letter = 'a';
    write_all(fd, &letter, 1);
    result("answer", read(fd, &letter, 1));
    tell(0);
    result("the end", read(fd, &letter, 1));
}
