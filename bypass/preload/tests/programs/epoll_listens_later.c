/* solo: members of an epoll set that become listeners, also under another number than they were added by. */
#define SOLO
#include "contract.h"

static void say_events(const char *what, int set, int timeout_ms) {
    struct epoll_event found[4];
    int count = epoll_wait(set, found, 4, timeout_ms);
    say("%s: %d events", what, count);
    for (int i = 0; i < count; i++)
        say("%u %s", found[i].data.u32, events(found[i].events));
}

static void listen_later(const char *what, int closes_first, int takes_number) {
    say("%s", what);
    int set = epoll_create1(0), fd = socket(AF_INET, SOCK_STREAM, 0), twin = dup(fd), other = -1;
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.u32 = 7};
    need(set >= 0 && twin >= 0, "a set and a socket");
    result("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    if (closes_first)
        close(fd);
    if (takes_number) {
        other = dup2(CHANNEL, fd);
        need(other == fd, "dup2");
    }
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    need(bind(twin, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    result("listen", listen(twin, 4));
    say_events("before a client comes", set, 0);
    int client = dial_port(port_of(twin));
    say_events("a client has come", set, LONG_MS);
    int served = accept(twin, NULL, NULL);
    outcome("accept", served);
    say_events("it is served", set, 0);
    event.events = EPOLLIN | EPOLLEXCLUSIVE;
    result("a wrong change", epoll_ctl(set, EPOLL_CTL_MOD, twin, &event));
    close(served), close(client), close(twin);
    if (!closes_first || takes_number)
        close(fd);
    say_events("it is closed", set, 0);
    close(set);
}

static void solo(void) {
    listen_later("by its number", 0, 0);
    listen_later("its number is closed", 1, 0);
    listen_later("its number is another file's", 1, 1);
}
