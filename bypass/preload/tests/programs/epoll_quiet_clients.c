/* pair: one set has connections of many client processes, of which most are quiet for a while and then send a byte. The
 * server waits for it in several ways. */
#include "contract.h"

#define CLIENTS 20
#define ROUNDS 3
#define QUIET_S 0.03
/* For the channel: that client connects once more. */
#define AGAIN 1000

/* ---- clients ---- */

static void write_when_told(int from, int port, int number) {
    int fd = dial_port(port), command;
    char letter = number;
    write_all(fd, &letter, 1);
    while (read(from, &command, sizeof command) == sizeof command) {
        if (command == AGAIN)
            fd = dial_port(port);
        write_all(fd, &letter, 1);
    }
    _exit(0);
}

static void client(void) {
    int port = hear(), to[CLIENTS];
    for (int number = 0; number < CLIENTS; number++) {
        int ends[2];
        need(pipe2(ends, O_CLOEXEC) == 0, "pipe2");
        pid_t child = fork();
        need(child >= 0, "fork");
        if (child == 0) {
            for (int i = 0; i < number; i++)
                close(to[i]);
            close(ends[1]);
            write_when_told(ends[0], port, number);
        }
        close(ends[0]);
        to[number] = ends[1];
    }
    for (int command; (command = hear()) >= 0;) {
        int number = command % AGAIN;
        command -= number;
        write_all(to[number], &command, sizeof command);
    }
    for (int number = 0; number < CLIENTS; number++)
        close(to[number]);
    say_ended_well(CLIENTS);
}

/* ---- server ---- */

static int set, listening, fds[CLIENTS];
static volatile pid_t sleeping;

static uint32_t kind_of(int number) {
    uint32_t kinds[] = {0, EPOLLET, EPOLLONESHOT};
    return EPOLLIN | kinds[number % 3];
}

static void watch(int command, int number) {
    struct epoll_event event = {.events = kind_of(number), .data.u32 = number};
    need(epoll_ctl(set, command, fds[number], &event) == 0, "epoll_ctl");
}

static int event_within(int timeout_ms) {
    struct epoll_event event;
    int found = epoll_wait(set, &event, 1, timeout_ms);
    need(found >= 0, "epoll_wait");
    return found ? (int)event.data.u32 : -1;
}

static int by_sleep(void) { return event_within(-1); }

static int by_looks(void) {
    int number;
    for (double start = now_s(); (number = event_within(0)) < 0;)
        need(now_s() < start + LONG_S, "a look finds the byte");
    return number;
}

static int by_poll(void) {
    struct pollfd one = {.fd = set, .events = POLLIN};
    need(poll(&one, 1, -1) == 1, "poll");
    return event_within(0);
}

static int by_outer_set(void) {
    struct epoll_event event = {.events = EPOLLIN};
    int outer = epoll_create1(0);
    need(epoll_ctl(outer, EPOLL_CTL_ADD, set, &event) == 0, "epoll_ctl");
    need(epoll_wait(outer, &event, 1, -1) == 1, "epoll_wait");
    /* A level: a second wait finds it, too. */
    need(epoll_wait(outer, &event, 1, LONG_S * 1000) == 1, "a second epoll_wait");
    close(outer);
    return event_within(0);
}

static void *sleep_in_set(void *found) {
    sleeping = gettid();
    *(int *)found = event_within(-1);
    return found;
}

static void take_byte(int number) {
    char letter;
    read_all(fds[number], &letter, 1);
    need(letter == number, "the client's own byte");
    if (kind_of(number) & EPOLLONESHOT)
        watch(EPOLL_CTL_MOD, number);
}

/* Only the first client sends meanwhile. */
static void leave_others_quiet(void) {
    for (double start = now_s(); now_s() < start + QUIET_S;) {
        tell(0);
        need(by_looks() == 0, "the busy client");
        take_byte(0);
    }
}

static int found_by(int (*wait_for_event)(void), int number) {
    leave_others_quiet();
    tell(number);
    int found = wait_for_event();
    need(found >= 0, "an event");
    take_byte(found);
    return found == number;
}

/* One thread looks while another one sleeps: a level is for both. */
static int found_beside_sleeper(int number) {
    pthread_t thread;
    int found;
    leave_others_quiet();
    sleeping = 0;
    need(pthread_create(&thread, NULL, sleep_in_set, &found) == 0, "thread");
    until_it_waits(&sleeping);
    tell(number);
    int own = by_looks();
    need(pthread_join(thread, NULL) == 0, "join");
    take_byte(number);
    return own == number && found == number;
}

static int connects_again(int number) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = CLIENTS};
    char letter;
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "epoll_ctl");
    leave_others_quiet();
    tell(AGAIN + number);
    need(by_sleep() == CLIENTS, "the listener");
    int fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    read_all(fd, &letter, 1);
    need(epoll_ctl(set, EPOLL_CTL_DEL, listening, NULL) == 0, "epoll_ctl");
    close(fds[number]);
    fds[number] = fd;
    watch(EPOLL_CTL_ADD, number);
    return letter == number;
}

static void accept_all(void) {
    struct epoll_event event = {.events = EPOLLIN};
    set = epoll_create1(0);
    listening = listener_on("127.0.0.1", CLIENTS);
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "epoll_ctl");
    need(epoll_wait(set, &event, 1, 0) == 0, "no client yet");
    tell(port_of(listening));
    for (int i = 0; i < CLIENTS; i++) {
        char number;
        need(epoll_wait(set, &event, 1, -1) == 1, "epoll_wait");
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        read_all(fd, &number, 1);
        fds[(int)number] = fd;
    }
    need(epoll_ctl(set, EPOLL_CTL_DEL, listening, NULL) == 0, "epoll_ctl");
    for (int i = 0; i < CLIENTS; i++)
        watch(EPOLL_CTL_ADD, i);
}

/* Of each kind one client. */
static int found_of_all(int (*wait_for_event)(void), int first) {
    int found = 0;
    for (int number = first; number < first + 3; number++)
        found += found_by(wait_for_event, number);
    return found;
}

static void server(void) {
    int sleeps = 0, looks = 0, both = 0, again = 0, polls = 0, outer = 0;
    accept_all();
    for (int round = 0; round < ROUNDS; round++) {
        sleeps += found_of_all(by_sleep, 3);
        looks += found_of_all(by_looks, 6);
        both += found_beside_sleeper(18);
        again += connects_again(16 + round % 2);
        polls += found_of_all(by_poll, 9);
        outer += found_of_all(by_outer_set, 12);
    }
    say("by sleeps %d, looks %d, polls %d, an outer set %d", sleeps, looks, polls, outer);
    say("next to a sleeper %d, of new connections %d", both, again);
    tell(-1);
}
