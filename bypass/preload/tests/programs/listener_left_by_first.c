/* pair: who is started after the first process has closed the listener accepts, sets options and sees errors. */
#include "contract.h"

enum { FIRST, SECOND, COUNT };

struct child {
    pid_t process;
    int closed[2], go[2];
};

/* Accepts one connection, closes the listener, and stays until its connection ends. */
static void serve(int listening, int number, const struct child *child) {
    int fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    close(listening);
    say("child %d: state %u", number, tcp_info(fd).tcpi_state);
    set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000);
    write_all(fd, number == FIRST ? "a" : "b", 1);
    write_all(child->closed[1], "c", 1);
    char byte;
    need(read(child->go[0], &byte, 1) == 1, "go");
    if (number == SECOND)
        write_all(fd, "x", 1);
    long got = read(fd, &byte, 1);
    say("child %d: read %ld %s", number, got, got == -1 ? strerrorname_np(errno) : "");
    _exit(0);
}

static void server(void) {
    struct child children[COUNT];
    int listening = listener(8);
    for (int i = 0; i < COUNT; i++) {
        struct child *child = &children[i];
        need(pipe(child->closed) == 0 && pipe(child->go) == 0, "pipe");
        child->process = fork();
        if (child->process == 0)
            serve(listening, i, child);
        close(child->closed[1]);
        char byte;
        say("child %d has accepted %zd", i, read(child->closed[0], &byte, 1));
        meet();
    }
    meet();
    for (int i = SECOND; i >= FIRST; i--) {
        int status;
        write_all(children[i].go[1], "g", 1);
        need(waitpid(children[i].process, &status, 0) == children[i].process, "waitpid");
        say("child %d ended %d", i, status);
        meet();
    }
}

static void client(void) {
    stay_on_the_kernel("client");
    int port = hear(), fds[COUNT];
    for (int i = 0; i < COUNT; i++) {
        fds[i] = dial_port(port);
        wait_for(fds[i], POLLIN);
        char byte;
        result("read", read(fds[i], &byte, 1));
        say("  from %c", byte);
        meet();
    }
    deafen(fds[SECOND]);
    meet();
    close(fds[FIRST]);
    meet();
    meet();
}
