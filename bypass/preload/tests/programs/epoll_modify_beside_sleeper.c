/* solo: a thread changes what it asks of members that have nothing, while another thread sleeps in the set. The sleeper
 * sleeps on until there is an event. */
#define SOLO
#include "contract.h"

#define CHANGES 300
#define FEW 50

static int set, ends[2];
static volatile pid_t sleeping;

static void ask(int command, uint32_t events) {
    struct epoll_event event = {.events = events, .data.fd = ends[0]};
    need(epoll_ctl(set, command, ends[0], &event) == 0, "epoll_ctl");
}

static long sleeps_of_this_thread(void) {
    struct rusage used;
    need(getrusage(RUSAGE_THREAD, &used) == 0, "getrusage");
    return used.ru_nvcsw;
}

static void *sleeper(void *sleeps) {
    struct epoll_event event;
    long before = sleeps_of_this_thread();
    sleeping = gettid();
    need(epoll_wait(set, &event, 1, -1) == 1, "epoll_wait");
    *(long *)sleeps = sleeps_of_this_thread() - before;
    return sleeps;
}

static void sleep_beside_changes(uint32_t events) {
    long sleeps;
    char byte;
    pthread_t thread;
    ask(EPOLL_CTL_MOD, events);
    sleeping = 0;
    need(pthread_create(&thread, NULL, sleeper, &sleeps) == 0, "thread");
    until_it_waits(&sleeping);
    for (int i = 0; i < CHANGES; i++) {
        ask(EPOLL_CTL_MOD, events);
        usleep(200);
    }
    write_all(ends[1], "x", 1);
    need(pthread_join(thread, NULL) == 0, "join");
    read_all(ends[0], &byte, 1);
    say("woken %s", sleeps < FEW ? "for the event" : "for changes too");
    if (sleeps >= FEW)
        say("sleeps %ld", sleeps);
}

/* A change that asks for what is there wakes. */
static void wake_by_change(void) {
    long sleeps;
    char byte;
    pthread_t thread;
    write_all(ends[1], "x", 1);
    ask(EPOLL_CTL_MOD, EPOLLPRI);
    sleeping = 0;
    need(pthread_create(&thread, NULL, sleeper, &sleeps) == 0, "thread");
    until_it_waits(&sleeping);
    ask(EPOLL_CTL_MOD, EPOLLIN | EPOLLONESHOT);
    need(pthread_join(thread, NULL) == 0, "join");
    read_all(ends[0], &byte, 1);
    say("woken by the change");
}

static void solo(void) {
    int listening = listener_on("127.0.0.1", 1);
    ends[1] = dial_port(port_of(listening));
    need((ends[0] = accept(listening, NULL, NULL)) >= 0, "accept");
    set = epoll_create1(0);
    ask(EPOLL_CTL_ADD, EPOLLIN);
    sleep_beside_changes(EPOLLIN);
    sleep_beside_changes(EPOLLIN | EPOLLET);
    sleep_beside_changes(EPOLLIN | EPOLLONESHOT);
    wake_by_change();
}
