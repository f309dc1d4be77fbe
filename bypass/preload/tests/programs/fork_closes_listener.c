/* pair: after a fork one process closes the listener that is a member of the set which both have; the
 * other is still notified of clients: a child that only writes, and a parent that only starts. */
#include "contract.h"

static int listening, set;

static void serve(const char *name) {
    struct epoll_event event = {0};
    need(epoll_wait(set, &event, 1, LONG_MS) == 1, "epoll_wait");
    int fd = accept(listening, NULL, NULL);
    say("%s: member %d, accepted %d", name, event.data.u32, fd >= 0);
    write_all(fd, "x", 1);
    close(fd);
}

static void open_all(void) {
    listening = listener(16);
    set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = 7};
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "add");
}

static void server(void) {
    int status;
    open_all();
    serve("before");
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            close(listening);
            _exit(0);
        }
        need(waitpid(child, &status, 0) == child, "waitpid");
        meet();
        serve("a child has closed it");
    }
    close(set);
    close(listening);
    open_all();
    pid_t child = fork();
    if (child == 0) {
        hear();
        serve("the parent has closed it");
        exit(0);
    }
    close(listening);
    tell(0);
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("child status %d", status);
}

static void ask(int port) {
    char letter = '-';
    int fd = dial_port(port);
    wait_for(fd, POLLIN);
    result("answer", recv(fd, &letter, 1, 0));
    close(fd);
}

static void client(void) {
    int port = hear();
    ask(port);
    for (int i = 0; i < 3; i++) {
        meet();
        ask(port);
    }
    port = hear();
    hear();
    tell(0);
    ask(port);
}
