/* pair: a child that is made by the number of clone, in namespaces of its own where that is allowed, has
 * the connection as the child of a fork has. */
#include "contract.h"
#include <sched.h>
#include <sys/syscall.h>

static pid_t clone_with(int namespaces) { return syscall(SYS_clone, namespaces | SIGCHLD, NULL, NULL, NULL, NULL); }

static void served_by_child(const char *name, int fd, int namespaces) {
    pid_t child = clone_with(namespaces);
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
    served_by_child("plain", accept(listening, NULL, NULL), 0);
    served_by_child("processes", accept(listening, NULL, NULL), CLONE_NEWPID | CLONE_NEWIPC);
    served_by_child("again", accept(listening, NULL, NULL), 0);
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < 3; i++) {
        int fd = dial_port(port);
        char byte = 0;
        usleep(20000);
        write_all(fd, "x", 1);
        result("answer", read(fd, &byte, 1));
        result("end", read(fd, &byte, 1));
        close(fd);
    }
}
