/* pair: 600 connections open at once, each with its own bytes, in one epoll set. */
#include "contract.h"

#define CONNECTIONS 600
#define LENGTH 2000

static void raise_limit(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void server(void) {
    raise_limit();
    int listening = listener_on("127.0.0.1", 1024), epoll = epoll_create1(0), closed = 0;
    tell(port_of(listening));
    set_nonblocking(listening);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening}, ready[64];
    epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &event);
    while (closed < CONNECTIONS) {
        int count = epoll_wait(epoll, ready, 64, LONG_MS);
        need(count > 0, "epoll_wait");
        for (int i = 0; i < count; i++) {
            if (ready[i].data.fd == listening) {
                int fd;
                while ((fd = accept(listening, NULL, NULL)) >= 0) {
                    event.data.fd = fd;
                    need(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "add");
                }
                continue;
            }
            char buffer[LENGTH];
            ssize_t got = read(ready[i].data.fd, buffer, sizeof buffer);
            need(got >= 0, "read");
            if (got > 0)
                write_all(ready[i].data.fd, buffer, got);
            else {
                close(ready[i].data.fd);
                closed++;
            }
        }
    }
    say("closed %d", closed);
}

static void client(void) {
    raise_limit();
    static int fds[CONNECTIONS];
    int port = hear(), right = 0;
    unsigned char sent[LENGTH], got[LENGTH];
    for (int i = 0; i < CONNECTIONS; i++)
        fds[i] = dial_port(port);
    for (int i = 0; i < CONNECTIONS; i++) {
        fill(sent, LENGTH, i * 31);
        write_all(fds[i], sent, LENGTH);
    }
    for (int i = CONNECTIONS; i-- > 0;) {
        fill(sent, LENGTH, i * 31);
        read_all(fds[i], got, LENGTH);
        right += memcmp(sent, got, LENGTH) == 0;
        close(fds[i]);
    }
    say("right %d", right);
}
