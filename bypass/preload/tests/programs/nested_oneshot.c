/* pair: sets of one-shot members in a set where they are one-shot too, as Java's virtual threads wait. */
#include "contract.h"
#include <semaphore.h>

enum { ROUNDS = 3000 };

static int outer;
static sem_t told;

static void server(void) {
    int fd = serve_one();
    char byte;
    for (int round = 0; round < ROUNDS; round++) {
        read_all(fd, &byte, 1);
        write_all(fd, &byte, 1);
    }
    hear();
    static char content[1 << 16];
    while (read(fd, content, sizeof content) > 0)
        ;
}

static void *wait_outside(void *unused) {
    struct epoll_event event;
    for (;;)
        if (epoll_wait(outer, &event, 1, -1) == 1)
            sem_post(&told);
    return unused;
}

static int add(int set, int fd, unsigned events) {
    struct epoll_event event = {.events = events | EPOLLONESHOT, .data.fd = fd};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
}

static int arm(int set, int fd, unsigned events) {
    struct epoll_event event = {.events = events | EPOLLONESHOT, .data.fd = fd};
    return epoll_ctl(set, EPOLL_CTL_MOD, fd, &event);
}

/* Looks, and while there is nothing waits until the outer set reports that there may be. */
static int is_told(int inner) {
    struct epoll_event event;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += LONG_S;
    while (epoll_wait(inner, &event, 1, 0) == 0) {
        need(arm(outer, inner, EPOLLIN) == 0, "arm");
        if (sem_timedwait(&told, &end) == -1 && errno == ETIMEDOUT)
            return 0;
    }
    return 1;
}

static void client(void) {
    char byte = 'x';
    pthread_t thread;
    int readers = epoll_create1(0), writers = epoll_create1(0), fd = dial();
    outer = epoll_create1(0);
    need(sem_init(&told, 0, 0) == 0, "semaphore");
    result("readers", add(outer, readers, EPOLLIN));
    result("writers", add(outer, writers, EPOLLIN));
    result("reader", add(readers, fd, EPOLLIN));
    need(pthread_create(&thread, NULL, wait_outside, NULL) == 0, "thread");
    int rounds = 0;
    for (; rounds < ROUNDS; rounds++) {
        write_all(fd, &byte, 1);
        if (!is_told(readers))
            break;
        read_all(fd, &byte, 1);
        need(arm(readers, fd, EPOLLIN) == 0, "arm");
    }
    say("%d rounds", rounds);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    static char content[1 << 16];
    while (write(fd, content, sizeof content) > 0)
        ;
    result("writer", add(writers, fd, EPOLLOUT));
    tell(0);
    say("room to write %s", is_told(writers) ? "is reported" : "is never reported");
}
