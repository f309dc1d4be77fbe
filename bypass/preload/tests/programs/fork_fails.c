/* pair: forks that fail leave nothing behind: a connection ends with its last real holder, and a later child
 * has it. */
#include "contract.h"

#define FAILURES 40

static void limit_processes(rlim_t count) {
    struct rlimit limit = {count, RLIM_INFINITY};
    need(getrlimit(RLIMIT_NPROC, &limit) == 0, "getrlimit");
    limit.rlim_cur = count < limit.rlim_max ? count : limit.rlim_max;
    need(setrlimit(RLIMIT_NPROC, &limit) == 0, "setrlimit");
}

static void end_of(pid_t child) {
    int status;
    need(child > 0 && waitpid(child, &status, 0) == child, "waitpid");
    say("child ended %d", status);
}

/* In a child: root's processes are not counted. */
static void try_in_vain(int fd) {
    if (getuid() == 0)
        need(setgid(65534) == 0 && setuid(65534) == 0, "setuid");
    limit_processes(0);
    int failed = 0, tried_vfork = 0;
    for (int i = 0; i < FAILURES; i++)
        failed += fork() == -1 && errno == EAGAIN;
    pid_t other = vfork();
    if (other == 0)
        _exit(0);
    tried_vfork = other == -1 && errno == EAGAIN;
    say("failed %d and %d", failed, tried_vfork);
    limit_processes(RLIM_INFINITY);
    pid_t child = fork();
    if (child == 0) {
        result("grandchild writes", write(fd, "grandchild", 10));
        _exit(0);
    }
    end_of(child);
    limit_processes(0);
    result("fork", fork());
    result("close", close(fd));
}

static void hold(int fd) {
    pid_t child = fork();
    if (child == 0) {
        try_in_vain(fd);
        tell(0);
        hear();
        _exit(0);
    }
    close(fd);
    end_of(child);
}

static void watch(int fd) {
    char text[16] = "";
    read_all(fd, text, 10);
    say("read %s", text);
    hear();
    struct pollfd one = {.fd = fd, .events = POLLIN};
    if (poll(&one, 1, LONG_MS) == 1)
        result("then read", read(fd, text, 1));
    else
        say("no end");
    tell(0);
}

static void server(void) {
    int listening = listener(4);
    hold(accept(listening, NULL, NULL));
    watch(accept(listening, NULL, NULL));
}

static void client(void) {
    int port = hear();
    watch(dial_port(port));
    hold(dial_port(port));
}
