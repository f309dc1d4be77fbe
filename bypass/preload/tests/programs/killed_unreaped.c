/* pair: a child is killed while it writes, and its parent has not waited for it yet and writes on the same connection. */
#include "written_to_the_end.h"

static pid_t writer(int fd) {
    pid_t child = fork();
    need(child >= 0, "fork");
    while (child == 0)
        write(fd, bytes, PIECE);
    return child;
}

static void server(void) {
    int listening = listener(16), failed = 0;
    memset(bytes, 'x', PIECE);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < STREAMS; i++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        pid_t child = writer(fd);
        siginfo_t end;
        /* The client has read some of it. */
        hear();
        kill(child, SIGKILL);
        need(waitid(P_PID, child, &end, WEXITED | WNOWAIT) == 0, "waitid");
        failed += write(fd, ".", 1) != 1;
        close(fd);
        need(waitpid(child, NULL, 0) == child, "waitpid");
    }
    say("%d writes of the parent failed", failed);
}

static void client(void) { read_streams(); }
