/* solo: poll, select and epoll that spin on a connection notice a pipe in the same call at once. */
#define SOLO
#include "contract.h"

#define SPIN_S 4

static int pipe_ends[2];
static volatile pid_t announced;

static void *writes(void *unused) {
    (void)unused;
    usleep(50000);
    write_all(pipe_ends[1], "x", 1);
    return NULL;
}

static double begin(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, writes, NULL);
    pthread_detach(thread);
    return naps_s();
}

static void end(const char *name, double since, int found) {
    char byte;
    say("%s = %d, before the spin's end %d", name, found, naps_s() - since < SPIN_S / 2.0);
    read_all(pipe_ends[0], &byte, 1);
}

static void solo(void) {
    if (!getenv("EF_POLL_USEC") || atoi(getenv("EF_POLL_USEC")) < 1000000) {
        char spin[32];
        snprintf(spin, sizeof spin, "%d", SPIN_S * 1000000);
        const char *names[] = {"EF_POLL_SPIN", "EF_SELECT_SPIN", "EF_EPOLL_SPIN", "EF_UL_POLL"};
        setenv("EF_POLL_USEC", spin, 1);
        for (int i = 0; i < 3; i++)
            setenv(names[i], "1", 1);
        execl("/proc/self/exe", "spin_beside_pipe", "solo", NULL);
        need(0, "exec");
    }
    int listening = listener_on("127.0.0.1", 4), fd = dial_port(port_of(listening));
    int peer = accept(listening, NULL, NULL), set = epoll_create1(0);
    need(peer >= 0 && pipe(pipe_ends) == 0, "sockets");
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
    epoll_ctl(set, EPOLL_CTL_ADD, pipe_ends[0], &event);
    struct pollfd both[] = {{fd, POLLIN, 0}, {pipe_ends[0], POLLIN, 0}};
    begin_naps();
    double since = begin();
    end("poll", since, poll(both, 2, LONG_MS));
    since = begin();
    end("ppoll", since, ppoll(both, 2, &(struct timespec){LONG_S, 0}, NULL));
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(fd, &wanted);
    FD_SET(pipe_ends[0], &wanted);
    since = begin();
    end("select", since, select(pipe_ends[0] + 1, &wanted, NULL, NULL, &(struct timeval){LONG_S, 0}));
    since = begin();
    end("epoll_wait", since, epoll_wait(set, &event, 1, LONG_MS));
}
