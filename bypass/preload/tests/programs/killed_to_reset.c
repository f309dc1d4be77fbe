/* pair: a process is killed, exits or calls exec with a connection that its close was to reset (SO_LINGER without a time). */
#include "contract.h"

enum { KILLED, EXITS, EXECS, SWITCHED_OFF, SET_BY_CHILD, SHUT_BEFORE, FROM_LISTENER, FORMS };

static void linger(int fd, int on) {
    struct linger at_once = {on, 0};
    need(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0, "SO_LINGER");
}

static void end_child(int form, int fd) {
    if (form == SWITCHED_OFF)
        linger(fd, 0);
    if (form == SET_BY_CHILD)
        linger(fd, 1);
    if (form == SHUT_BEFORE) {
        shutdown(fd, SHUT_WR);
        usleep(300000); /* The client reads the end before the reset comes. */
    }
    if (form == KILLED || form == FROM_LISTENER)
        raise(SIGKILL);
    if (form == EXECS) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        execl("/bin/true", "true", NULL);
    }
    _exit(0);
}

static void server(void) {
    int listening = listener(16);
    for (int form = 0; form < FORMS; form++) {
        int go[2];
        char byte;
        if (form == FROM_LISTENER)
            linger(listening, 1);
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0 && pipe(go) == 0, "accept, pipe");
        if (form < SET_BY_CHILD || form == SHUT_BEFORE)
            linger(fd, 1);
        pid_t child = fork();
        if (child == 0) {
            need(read(go[0], &byte, 1) == 1, "read");
            end_child(form, fd);
        }
        linger(fd, 0);
        if (form != SWITCHED_OFF && form != SET_BY_CHILD)
            linger(fd, 1);
        close(fd);
        write_all(go[1], "g", 1);
        waitpid(child, NULL, 0);
        meet();
    }
}

static void client(void) {
    int port = hear();
    for (int form = 0; form < FORMS; form++) {
        int fd = dial_port(port);
        char byte, name[32];
        snprintf(name, sizeof name, "form %d", form);
        result(name, read(fd, &byte, 1));
        meet();
        close(fd);
    }
}
