/* pair: processes that may spin for a hundred milliseconds share one core, as those of a database do: an answer takes the
 * core for microseconds, not for time slices. */
#include "contract.h"
#include <sched.h>

#define SERVERS 8
#define ANSWERS 400

/* Threads that the library starts find its settings when the program begins. */
static void spin_for_long(const char *role) {
    const char *now = getenv("EF_POLL_USEC");
    if (now && atoi(now) >= 100000)
        return;
    setenv("EF_POLL_USEC", "100000", 1);
    execl("/proc/self/exe", program_invocation_name, role, NULL);
    need(0, "exec");
}

static void take_one_core(void) {
    cpu_set_t all, one;
    int core = 0;
    need(sched_getaffinity(0, sizeof all, &all) == 0, "sched_getaffinity");
    while (!CPU_ISSET(core, &all))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    need(sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
}

/* Every other one waits by epoll_wait. */
static void answer(int fd, int polls) {
    char letter;
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0);
    need(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll");
    for (;;) {
        if (polls)
            need(epoll_wait(set, &event, 1, -1) == 1, "epoll_wait");
        if (read(fd, &letter, 1) != 1)
            _exit(0);
        write_all(fd, &letter, 1);
    }
}

static void server(void) {
    spin_for_long("server");
    int listening = listener(SERVERS);
    take_one_core();
    for (int i = 0; i < SERVERS; i++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        pid_t child = fork();
        need(child >= 0, "fork");
        if (child == 0)
            answer(fd, i % 2);
        close(fd);
    }
    say_ended_well(SERVERS);
    struct rusage used;
    need(getrusage(RUSAGE_CHILDREN, &used) == 0, "getrusage");
    double busy_us = (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
    say("more than 300 us for an answer: %d", busy_us > 300.0 * SERVERS * ANSWERS);
}

/* One question is open at each server. */
static void client(void) {
    char letter = 'a';
    int fds[SERVERS], port = hear();
    for (int i = 0; i < SERVERS; i++) {
        fds[i] = dial_port(port);
        write_all(fds[i], &letter, 1);
    }
    for (int round = 0; round < ANSWERS; round++)
        for (int i = 0; i < SERVERS; i++) {
            read_all(fds[i], &letter, 1);
            if (round + 1 < ANSWERS)
                write_all(fds[i], &letter, 1);
        }
    for (int i = 0; i < SERVERS; i++)
        close(fds[i]);
}
