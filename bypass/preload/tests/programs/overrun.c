/* pair: fortified calls that would overrun their buffers end the program with libc's message. */
#include "contract.h"

ssize_t __read_chk(int fd, void *bytes, size_t count, size_t room);
ssize_t __recv_chk(int fd, void *bytes, size_t count, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *bytes, size_t count, size_t room, int flags, struct sockaddr *name,
                       socklen_t *length);
int __poll_chk(struct pollfd *entries, nfds_t count, int timeout, size_t room);
int __ppoll_chk(struct pollfd *entries, nfds_t count, const struct timespec *time, const sigset_t *mask,
                size_t room);

static void call(int which, int fd, size_t room) {
    char bytes[8];
    struct pollfd entries[2] = {{fd, POLLIN, 0}, {fd, POLLIN, 0}};
    struct timespec now = {0, 0};
    switch (which) {
    case 0: result("read", __read_chk(fd, bytes, 2, room)); break;
    case 1: result("recv", __recv_chk(fd, bytes, 2, room, 0)); break;
    case 2: result("recvfrom", __recvfrom_chk(fd, bytes, 2, room, 0, NULL, NULL)); break;
    case 3: result("poll", __poll_chk(entries, 2, 0, room * sizeof *entries)); break;
    case 4: result("ppoll", __ppoll_chk(entries, 2, &now, NULL, room * sizeof *entries)); break;
    }
}

static void overrun(int which, int fd) {
    int ends[2], status;
    char text[200] = "";
    need(pipe(ends) == 0, "pipe");
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
        struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        dup2(ends[1], STDERR_FILENO);
        call(which, fd, 1);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got, done = 0; (got = read(ends[0], text + done, sizeof text - 1 - done)) > 0;)
        done += got;
    close(ends[0]);
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("call %d: aborted %d: %s", which, WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, text);
}

static void server(void) {
    int fd = serve_one();
    write_all(fd, "abcdefgh", 8);
    meet();
}

static void client(void) {
    int fd = dial();
    wait_for(fd, POLLIN);
    for (int which = 0; which < 5; which++) {
        call(which, fd, 2);
        overrun(which, fd);
    }
    meet();
}
