/* pair: SIGPIPE comes with EPIPE unless MSG_NOSIGNAL says otherwise. */
#include "contract.h"

static volatile sig_atomic_t pipes;
static void count_pipe(int number) {
    (void)number;
    pipes++;
}

static void server(void) {
    close(serve_one());
    meet();
    meet();
}

static void client(void) {
    int fd = dial();
    signal(SIGPIPE, count_pipe);
    meet();
    wait_for(fd, POLLRDHUP);
    result("shutdown", shutdown(fd, SHUT_WR));
    result("write", write(fd, "x", 1));
    say("signals %d", pipes);
    result("send", send(fd, "x", 1, 0));
    say("signals %d", pipes);
    result("MSG_NOSIGNAL", send(fd, "x", 1, MSG_NOSIGNAL));
    say("signals %d", pipes);
    result("nothing", send(fd, "", 0, 0));
    result("nothing, MSG_NOSIGNAL", send(fd, "", 0, MSG_NOSIGNAL));
    say("signals %d", pipes);
    struct iovec piece = {"x", 1};
    result("writev", writev(fd, &piece, 1));
    say("signals %d", pipes);
    signal(SIGPIPE, SIG_IGN);
    result("write while ignored", write(fd, "x", 1));
    say("signals %d", pipes);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        ssize_t put = write(fd, "x", 1);
        _exit(put == -1 ? 1 : 2);
    }
    int status;
    waitpid(child, &status, 0);
    say("killed by SIGPIPE %d", WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE);
    meet();
}
