/* pair: a child that is made by the number of clone or fork, in namespaces of its own where that is allowed, has
 * the connection as the child of a fork has. */
#include "contract.h"
#include <sched.h>
#include <sys/syscall.h>

static pid_t clone_with(int namespaces) { return syscall(SYS_clone, namespaces | SIGCHLD, NULL, NULL, NULL, NULL); }

/* Not every architecture has the call. */
static pid_t fork_by_number(void) {
#ifdef SYS_fork
    return syscall(SYS_fork);
#else
    return -1;
#endif
}

static void served_by_child(const char *name, int fd, pid_t child) {
    if (child == -1)
        child = fork();
    if (child == 0) {
        char byte;
        ssize_t got = read(fd, &byte, 1);
        write_all(fd, &byte, 1);
        _exit(got == 1 ? 0 : 1);
    }
    int status;
    close(fd);
    waitpid(child, &status, 0);
    say("%s: status %d", name, status);
}

static void server(void) {
    int listening = listener(16);
    int fd = accept(listening, NULL, NULL);
    served_by_child("plain", fd, clone_with(0));
    fd = accept(listening, NULL, NULL);
    served_by_child("processes", fd, clone_with(CLONE_NEWPID | CLONE_NEWIPC));
    fd = accept(listening, NULL, NULL);
    served_by_child("again", fd, clone_with(0));
    fd = accept(listening, NULL, NULL);
    served_by_child("fork", fd, fork_by_number());
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < 4; i++) {
        int fd = dial_port(port);
        char byte = 0;
        usleep(20000);
        write_all(fd, "x", 1);
        result("answer", read(fd, &byte, 1));
        result("end", read(fd, &byte, 1));
        close(fd);
    }
}
