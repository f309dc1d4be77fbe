/* pair: a set is closed while a thread waits in it, and another one is made: what comes there is not reported to
 * the thread that waits in the first. */
#include "contract.h"

static void server(void) {
    int listening = listener(16), idle = accept(listening, NULL, NULL), fd = accept(listening, NULL, NULL);
    need(idle >= 0 && fd >= 0, "accept");
    hear();
    write_all(fd, "x", 1);
    hear();
}

static int set;
static volatile pid_t waiting;

static void *wait_in_it(void *unused) {
    struct epoll_event event;
    waiting = gettid();
    /* Far longer than the other thread takes to see that this one waits: it must not have ended by then. */
    result("in the first", epoll_wait(set, &event, 1, 3000));
    return unused;
}

static void client(void) {
    int port = hear(), idle = dial_port(port), fd = dial_port(port);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    pthread_t thread;
    set = epoll_create1(0);
    need(epoll_ctl(set, EPOLL_CTL_ADD, idle, &event) == 0, "add");
    need(pthread_create(&thread, NULL, wait_in_it, NULL) == 0, "thread");
    until_it_waits(&waiting);
    close(set);
    need(epoll_create1(0) == set, "the same number");
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "add");
    need(epoll_wait(set, &event, 1, 0) == 0, "nothing yet");
    tell(0);
    wait_for(fd, POLLIN);
    need(pthread_join(thread, NULL) == 0, "join");
    result("in the second", epoll_wait(set, &event, 1, LONG_MS));
    tell(0);
}
