/* pair: a program with a connection runs another one, under a limit on the size of files that admits none: the limit
 * does not concern sockets, and the other program runs to its end. */
#include "contract.h"

static void run_limited(void) {
    struct rlimit none = {0, 0};
    need(setrlimit(RLIMIT_FSIZE, &none) == 0, "RLIMIT_FSIZE");
    execlp("true", "true", NULL);
    _exit(1);
}

static void server(void) {
    int fd = serve_one(), status;
    char byte;
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0)
        run_limited();
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("ended by a signal %d, with %d", WTERMSIG(status), WEXITSTATUS(status));
    write_all(fd, "x", 1);
    result("end", read(fd, &byte, 1));
}

static void client(void) {
    char byte;
    int fd = dial();
    read_all(fd, &byte, 1);
    close(fd);
}
