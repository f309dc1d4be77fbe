/* pair: a server with the policy of real-time threads that spins on the one processor it may use: clients find it, and
 * what it starts and what it locks meanwhile ends. */
#include "contract.h"
#include <sched.h>

#define CONNECTIONS 5

static int listening;

static void *writes(void *place) {
    int fd = *(int *)place;
    for (int i = 0; i < 2000; i++)
        write_all(fd, "x", 1);
    return NULL;
}

static void be_real_time(void) {
    cpu_set_t one;
    struct sched_param first = {.sched_priority = 5};
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setscheduler(0, SCHED_FIFO, &first); /* refused where it has not the right */
}

static void server(void) {
    double since;
    int in_time = 1;
    be_real_time();
    listening = listener_on("127.0.0.1", 8);
    set_nonblocking(listening);
    tell(port_of(listening));
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd;
        since = now_s();
        while ((fd = accept(listening, NULL, NULL)) < 0)
            need(errno == EAGAIN && now_s() - since < LONG_S, "a client");
        pthread_t thread;
        need(pthread_create(&thread, NULL, writes, &fd) == 0, "pthread_create");
        writes(&fd);
        pthread_join(thread, NULL);
        in_time &= system("true") == 0 && now_s() - since < LONG_S / 2;
        close(fd);
    }
    say("in time %d", in_time);
}

/* The server spins for no longer than a client takes to come: it keeps every other program off its processor. */
static void go_elsewhere(void) {
    cpu_set_t all;
    need(sched_getaffinity(0, sizeof all, &all) == 0, "sched_getaffinity");
    CPU_CLR(0, &all);
    if (CPU_COUNT(&all) > 0)
        need(sched_setaffinity(0, sizeof all, &all) == 0, "sched_setaffinity");
}

static void client(void) {
    go_elsewhere();
    static char bytes[65536];
    int port = hear();
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = dial_port(port);
        ssize_t got, sum = 0;
        while ((got = read(fd, bytes, sizeof bytes)) > 0)
            sum += got;
        say("received %zd", sum);
        close(fd);
    }
}
