/* pair: EPOLLEXCLUSIVE on a listener: every connection wakes somebody, wrong uses are refused. */
#include "contract.h"

#define WAITERS 4
#define CONNECTIONS 40

static int listening, accepted, stop_fd;

static void *waiter(void *unused) {
    (void)unused;
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.fd = listening};
    need(epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &event) == 0, "add exclusive");
    event = (struct epoll_event){.events = EPOLLIN, .data.fd = stop_fd};
    need(epoll_ctl(epoll, EPOLL_CTL_ADD, stop_fd, &event) == 0, "add stop");
    for (;;) {
        need(epoll_wait(epoll, &event, 1, LONG_MS) == 1, "wait");
        if (event.data.fd == stop_fd)
            return NULL;
        int fd = accept4(listening, NULL, NULL, SOCK_NONBLOCK);
        if (fd >= 0) {
            __atomic_add_fetch(&accepted, 1, __ATOMIC_SEQ_CST);
            need(send(fd, "k", 1, 0) == 1, "send");
        }
    }
}

static void server(void) {
    listening = listener_on("127.0.0.1", 64);
    set_nonblocking(listening);
    stop_fd = eventfd(0, 0);
    pthread_t threads[WAITERS];
    for (int i = 0; i < WAITERS; i++)
        pthread_create(&threads[i], NULL, waiter, NULL);
    tell(port_of(listening));
    hear();
    eventfd_write(stop_fd, 1);
    for (int i = 0; i < WAITERS; i++)
        pthread_join(threads[i], NULL);
    say("accepted %d", accepted);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT};
    result("exclusive with one shot", epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &event));
    event.events = EPOLLIN | EPOLLEXCLUSIVE;
    result("exclusive", epoll_ctl(epoll, EPOLL_CTL_ADD, listening, &event));
    result("modify to exclusive", epoll_ctl(epoll, EPOLL_CTL_MOD, listening, &event));
    event.events = EPOLLIN;
    result("modify an exclusive one", epoll_ctl(epoll, EPOLL_CTL_MOD, listening, &event));
}

static void client(void) {
    int port = hear(), served = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = dial_port(port);
        char letter;
        read_all(fd, &letter, 1);
        served += letter == 'k';
        close(fd);
    }
    say("served %d", served);
    tell(0);
}
