/* pair: threads sleep in epoll_wait on one set, each with room for one event. Connections that become readable in one
 * go wake as many of them: none reads before all have an event. */
#include "contract.h"

#define THREADS 4
#define ROUNDS 10

static int set, connections[THREADS], entered, woken;
static volatile pid_t threads[THREADS];

static int count_of(int *counter) { return __atomic_load_n(counter, __ATOMIC_SEQ_CST); }

static void count(int *counter) { __atomic_add_fetch(counter, 1, __ATOMIC_SEQ_CST); }

static void until(int *counter, int wanted, const char *what) {
    for (double start = now_s(); count_of(counter) < wanted; usleep(1000))
        need(now_s() < start + LONG_S, what);
}

static void arm(int which, int command) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = which};
    need(epoll_ctl(set, command, connections[which], &event) == 0, "epoll_ctl");
}

static void *worker(void *number) {
    threads[(long)number] = gettid();
    for (int round = 1; round <= ROUNDS; round++) {
        struct epoll_event event;
        char byte;
        count(&entered);
        need(epoll_wait(set, &event, 1, -1) == 1, "epoll_wait");
        count(&woken);
        until(&woken, THREADS * round, "every thread is woken");
        read_all(connections[event.data.u32], &byte, 1);
        arm(event.data.u32, EPOLL_CTL_MOD);
    }
    return NULL;
}

static void until_all_wait(int round) {
    until(&entered, THREADS * round, "every thread waits");
    for (int i = 0; i < THREADS; i++)
        until_it_waits(&threads[i]);
}

static void server(void) {
    int listening = listener(THREADS);
    pthread_t all[THREADS];
    set = epoll_create1(0);
    for (int i = 0; i < THREADS; i++) {
        need((connections[i] = accept(listening, NULL, NULL)) >= 0, "accept");
        arm(i, EPOLL_CTL_ADD);
    }
    for (long i = 0; i < THREADS; i++)
        need(pthread_create(&all[i], NULL, worker, (void *)i) == 0, "thread");
    for (int round = 1; round <= ROUNDS; round++) {
        until_all_wait(round);
        tell(0);
        until(&woken, THREADS * round, "every thread is woken");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(all[i], NULL);
    say("events %d", woken);
    tell(0);
}

static void client(void) {
    int port = hear(), fds[THREADS];
    for (int i = 0; i < THREADS; i++)
        fds[i] = dial_port(port);
    for (int round = 1; round <= ROUNDS; round++) {
        hear();
        for (int i = 0; i < THREADS; i++)
            write_all(fds[i], "x", 1);
    }
    hear();
}
