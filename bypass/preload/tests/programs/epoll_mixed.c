/* pair: one epoll set over a socket, an eventfd, a timerfd, a signalfd and a pipe. */
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include "contract.h"

static int epoll;

static void add(int fd, int tag, unsigned wanted) {
    struct epoll_event event = {.events = wanted, .data.u32 = tag};
    need(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "add");
}

/* Which members are ready, in the order of their tags. */
static void look(const char *name, int timeout_ms) {
    struct epoll_event ready[8];
    unsigned seen[8] = {0};
    int count = epoll_wait(epoll, ready, 8, timeout_ms);
    for (int i = 0; i < count; i++)
        seen[ready[i].data.u32] = ready[i].events;
    result(name, count);
    for (int i = 0; i < 8; i++)
        if (seen[i])
            say("  %d: %s", i, events(seen[i]));
}

static void *write_later(void *fd) {
    usleep(30000);
    eventfd_write((intptr_t)fd, 5);
    return NULL;
}

static void server(void) {
    int fd = serve_one();
    hear();
    write_all(fd, "x", 1);
    meet();
    hear();
}

static void client(void) {
    int fd = dial(), event_fd = eventfd(0, EFD_NONBLOCK), pipes[2];
    epoll = epoll_create1(0);
    need(pipe(pipes) == 0, "pipe");
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mask, NULL);
    int signals = signalfd(-1, &mask, SFD_NONBLOCK);
    add(fd, 1, EPOLLIN);
    add(event_fd, 2, EPOLLIN | EPOLLET);
    add(timer, 3, EPOLLIN);
    add(signals, 4, EPOLLIN);
    add(pipes[0], 5, EPOLLIN);
    look("nothing", 0);
    eventfd_write(event_fd, 1);
    look("eventfd", LONG_MS);
    look("once, by edge", 0);
    uint64_t value;
    struct itimerspec soon = {.it_value.tv_nsec = 20000000};
    timerfd_settime(timer, 0, &soon, NULL);
    look("timer", LONG_MS);
    result("read the timer", read(timer, &value, 8));
    raise(SIGUSR1);
    look("signal", LONG_MS);
    struct signalfd_siginfo info;
    result("read the signal", read(signals, &info, sizeof info));
    tell(0);
    meet();
    wait_for(fd, POLLIN);
    need(write(pipes[1], "p", 1) == 1, "write");
    look("socket and pipe", LONG_MS);
    char byte;
    read_all(fd, &byte, 1);
    read_all(pipes[0], &byte, 1);
    read_all(event_fd, &value, 8);
    pthread_t thread;
    pthread_create(&thread, NULL, write_later, (void *)(intptr_t)event_fd);
    look("another thread wakes by eventfd", LONG_MS);
    pthread_join(thread, NULL);
    close(pipes[1]);
    look("the pipe's writer is gone", LONG_MS);
    tell(0);
}
