/* solo: a thread looks at a set, without waiting, in which another one sleeps, and takes the event that was about to
 * wake that one. The next event wakes it all the same. */
#define SOLO
#include "contract.h"
#include <sched.h>

#define ROUNDS 20

static int set, readers[2], writers[2], taken[2];
static volatile pid_t sleeping;

static int count_of(int which) { return __atomic_load_n(&taken[which], __ATOMIC_SEQ_CST); }

static void until_taken(int which, int wanted) {
    for (double start = now_s(); count_of(which) < wanted; usleep(1000))
        need(now_s() < start + LONG_S, "the sleeper is woken");
}

static void arm(int which, int command) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u32 = which};
    need(epoll_ctl(set, command, readers[which], &event) == 0, "epoll_ctl");
}

/* Both by one listener: what rings for the one, rings for the other in the same place. */
static void connect_both(void) {
    int listening = listener_on("127.0.0.1", 2);
    for (int which = 0; which < 2; which++) {
        writers[which] = dial_port(port_of(listening));
        need((readers[which] = accept(listening, NULL, NULL)) >= 0, "accept");
        arm(which, EPOLL_CTL_ADD);
    }
    close(listening);
}

static void take_byte(int which) {
    char byte;
    read_all(readers[which], &byte, 1);
    arm(which, EPOLL_CTL_MOD);
    __atomic_add_fetch(&taken[which], 1, __ATOMIC_SEQ_CST);
}

/* On one processor, where a batch thread that is woken does not push the other one off, the look mostly
 * comes first. */
static void stay_on_one_processor(void) {
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET(sched_getcpu(), &own);
    sched_setaffinity(0, sizeof own, &own);
}

static void *sleeper(void *unused) {
    struct sched_param none = {0};
    if (sched_getscheduler(0) == SCHED_OTHER)
        sched_setscheduler(0, SCHED_BATCH, &none);
    sleeping = gettid();
    for (;;) {
        struct epoll_event event;
        need(epoll_wait(set, &event, 1, -1) == 1, "epoll_wait");
        take_byte(event.data.u32);
    }
    return unused;
}

static void run(int round) {
    struct epoll_event found[8];
    until_it_waits(&sleeping);
    write_all(writers[0], "a", 1);
    int is_ours = epoll_wait(set, found, 8, 0) == 1;
    write_all(writers[1], "b", 1);
    until_taken(1, round);
    if (is_ours)
        take_byte(0);
    until_taken(0, round);
}

static void solo(void) {
    pthread_t thread;
    struct epoll_event file = {.events = EPOLLIN};
    set = epoll_create1(0);
    need(epoll_ctl(set, EPOLL_CTL_ADD, eventfd(0, 0), &file) == 0, "eventfd");
    connect_both();
    stay_on_one_processor();
    need(pthread_create(&thread, NULL, sleeper, NULL) == 0, "thread");
    for (int round = 1; round <= ROUNDS; round++)
        run(round);
    say("rounds %d", ROUNDS);
}
