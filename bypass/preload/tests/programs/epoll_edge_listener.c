/* pair: a listener with EPOLLET: one report for each arrival, whether the others were accepted or not. */
#include "contract.h"

static void look(int set, const char *name) {
    struct epoll_event event;
    result(name, epoll_wait(set, &event, 1, 0));
}

static void server(void) {
    int listening = listener(16), set = epoll_create1(0);
    set_nonblocking(listening);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = 1};
    result("add", epoll_ctl(set, EPOLL_CTL_ADD, listening, &event));
    meet();
    meet();
    need(epoll_wait(set, &event, 1, LONG_MS) == 1, "two have come");
    look(set, "reported once");
    outcome("accept one", accept(listening, NULL, NULL));
    look(set, "one is left, which is not new");
    meet();
    meet();
    need(epoll_wait(set, &event, 1, LONG_MS) == 1, "a third");
    look(set, "reported once");
    event.events = EPOLLIN | EPOLLET;
    result("modify", epoll_ctl(set, EPOLL_CTL_MOD, listening, &event));
    look(set, "reported again after that");
    look(set, "but once");
    outcome("accept", accept(listening, NULL, NULL));
    outcome("accept", accept(listening, NULL, NULL));
    result("accept without a client", accept(listening, NULL, NULL));
}

static void client(void) {
    int port = hear(), fds[3];
    meet();
    fds[0] = dial_port(port);
    fds[1] = dial_port(port);
    meet();
    meet();
    fds[2] = dial_port(port);
    meet();
    char byte;
    for (int i = 0; i < 3; i++)
        read(fds[i], &byte, 1);
}
