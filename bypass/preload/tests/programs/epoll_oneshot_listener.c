/* pair: EPOLLONESHOT on a listener: one report, however many clients come, until it is armed again. */
#include "contract.h"

#define CLIENTS 3

static void look(const char *name, int epoll) {
    struct epoll_event event = {0};
    int count = epoll_wait(epoll, &event, 1, 0);
    if (count == 1)
        say("%s: %s", name, events(event.events));
    else
        result(name, count);
}

static void server(void) {
    int listening = listener(16), epoll = epoll_create1(0), fds[CLIENTS + 1];
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT};
    set_nonblocking(listening);
    result("add", epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &event));
    look("before anybody", epoll);
    meet();
    wait_for(listening, POLLIN);
    meet();
    look("the first report", epoll);
    for (int i = 0; i < CLIENTS; i++)
        look("disarmed", epoll);
    result("modify", epoll_ctl(epoll, EPOLL_CTL_MOD, listening, &event));
    look("armed again, they wait still", epoll);
    look("disarmed again", epoll);
    for (int i = 0; i < CLIENTS; i++) {
        wait_for(listening, POLLIN); /* between hosts the last ones may still be on their way */
        need((fds[i] = accept(listening, NULL, NULL)) >= 0, "accept");
    }
    result("no more", accept(listening, NULL, NULL));
    meet();
    wait_for(listening, POLLIN);
    look("disarmed for a new one too", epoll);
    result("modify", epoll_ctl(epoll, EPOLL_CTL_MOD, listening, &event));
    look("armed", epoll);
    need((fds[CLIENTS] = accept(listening, NULL, NULL)) >= 0, "accept");
    result("modify", epoll_ctl(epoll, EPOLL_CTL_MOD, listening, &event));
    look("armed, no client there", epoll);
    meet();
}

static void client(void) {
    int port = hear();
    meet();
    for (int i = 0; i < CLIENTS; i++)
        dial_port(port);
    meet();
    meet();
    dial_port(port);
    meet();
}
