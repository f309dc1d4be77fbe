/* What a wait costs with many connections, client processes or threads on one epoll set.
 *
 *   waits CONNECTIONS PROCESSES THREADS ACTIVE SECONDS
 *
 * A server on core 0 has CONNECTIONS connections of PROCESSES client processes in one epoll set, on which THREADS threads
 * wait. The clients are on core 1. ACTIVE connections of the first client exchange one byte in turn, the others are idle.
 * Prints: accelerated connections, nanoseconds of an epoll_wait that finds nothing and may not sleep, exchanges per
 * second, and nanoseconds of the server's CPU time for each. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOOKS 20000

static int connections, processes, threads, active;
static double seconds;
static int set;
static int fds[1 << 16];

static void need(int condition, const char *what) {
    if (!condition) {
        perror(what);
        exit(1);
    }
}

static double seconds_of(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void pin(int core) {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    CPU_SET(core, &cores);
    need(sched_setaffinity(0, sizeof cores, &cores) == 0, "sched_setaffinity");
}

static void plain(int fd) {
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static char get(int fd) {
    char byte = 0;
    need(read(fd, &byte, 1) == 1, "read");
    return byte;
}

static void put(int fd, char byte) { need(write(fd, &byte, 1) == 1, "write"); }

/* ---- server ---- */

static void watch(int operation, int fd) {
    struct epoll_event event = {.events = EPOLLIN | (threads > 1 ? EPOLLONESHOT : 0), .data.fd = fd};
    need(epoll_ctl(set, operation, fd, &event) == 0, "epoll_ctl");
}

static void *answer(void *unused) {
    struct epoll_event event;
    for (;;) {
        if (epoll_wait(set, &event, 1, -1) != 1)
            continue;
        char byte;
        if (read(event.data.fd, &byte, 1) != 1) {
            epoll_ctl(set, EPOLL_CTL_DEL, event.data.fd, NULL);
            continue;
        }
        put(event.data.fd, byte);
        if (threads > 1)
            watch(EPOLL_CTL_MOD, event.data.fd);
    }
    return unused;
}

static int is_accelerated(int fd) {
    int (*stat)(int, void *) = (int (*)(int, void *))dlsym(RTLD_DEFAULT, "onload_fd_stat");
    return stat && stat(fd, NULL) == 1;
}

static double look_ns(void) {
    struct epoll_event events[64];
    double before = seconds_of(CLOCK_MONOTONIC);
    for (int i = 0; i < LOOKS; i++)
        need(epoll_wait(set, events, 64, 0) == 0, "a look finds nothing");
    return (seconds_of(CLOCK_MONOTONIC) - before) / LOOKS * 1e9;
}

static void serve(int port_to, int go_to, int done_from) {
    pin(0);
    int listening = socket(AF_INET, SOCK_STREAM, 0), accelerated = 0;
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof name;
    need(bind(listening, (struct sockaddr *)&name, sizeof name) == 0 && listen(listening, 1024) == 0, "listen");
    need(getsockname(listening, (struct sockaddr *)&name, &length) == 0, "getsockname");
    /* A server that waits in a set before its first client is known to make no child for each. */
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening};
    set = epoll_create1(0);
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "epoll_ctl");
    need(epoll_wait(set, &event, 1, 0) == 0, "no client yet");
    need(write(port_to, &name.sin_port, sizeof name.sin_port) == sizeof name.sin_port, "write");
    for (int i = 0; i < connections; i++) {
        need(epoll_wait(set, &event, 1, -1) == 1, "epoll_wait");
        need((fds[i] = accept(listening, NULL, NULL)) >= 0, "accept");
        plain(fds[i]);
        accelerated += is_accelerated(fds[i]);
    }
    need(epoll_ctl(set, EPOLL_CTL_DEL, listening, NULL) == 0, "epoll_ctl");
    for (int i = 0; i < connections; i++)
        watch(EPOLL_CTL_ADD, fds[i]);
    printf("%d %.0f ", accelerated, look_ns());
    fflush(stdout);
    pthread_t thread;
    for (int i = 0; i < threads; i++)
        need(pthread_create(&thread, NULL, answer, NULL) == 0, "thread");
    double before = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    put(go_to, 'g');
    long exchanges;
    need(read(done_from, &exchanges, sizeof exchanges) == sizeof exchanges, "read");
    printf("%.0f\n", (seconds_of(CLOCK_PROCESS_CPUTIME_ID) - before) / exchanges * 1e9);
    fflush(stdout);
    _exit(0);
}

/* ---- clients ---- */

static int dial(in_port_t port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    need(fd >= 0 && connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    plain(fd);
    return fd;
}

/* Each of the active connections has one byte on its way at any time. */
static long exchange(void) {
    struct epoll_event events[64];
    long exchanges = 0;
    int own = epoll_create1(0);
    for (int i = 0; i < active; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fds[i]};
        need(epoll_ctl(own, EPOLL_CTL_ADD, fds[i], &event) == 0, "epoll_ctl");
        put(fds[i], 'x');
    }
    for (double end = seconds_of(CLOCK_MONOTONIC) + seconds; seconds_of(CLOCK_MONOTONIC) < end;) {
        int count = epoll_wait(own, events, 64, 1000);
        for (int i = 0; i < count; i++, exchanges++)
            put(events[i].data.fd, get(events[i].data.fd));
    }
    return exchanges;
}

static void ask(int number, in_port_t port, int ready_to, int go_from, int done_to) {
    pin(1);
    int own = connections / processes;
    for (int i = 0; i < own; i++)
        fds[i] = dial(port);
    put(ready_to, 'r');
    if (number == 0) {
        get(go_from);
        double begun = seconds_of(CLOCK_MONOTONIC);
        long exchanges = exchange();
        printf("%.0f ", exchanges / (seconds_of(CLOCK_MONOTONIC) - begun));
        fflush(stdout);
        need(write(done_to, &exchanges, sizeof exchanges) == sizeof exchanges, "write");
    }
    for (;;)
        pause(); /* until the parent ends */
}

static pid_t begin(void) {
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

int main(int count, char **words) {
    if (count != 6) {
        fprintf(stderr, "usage: waits CONNECTIONS PROCESSES THREADS ACTIVE SECONDS\n");
        return 2;
    }
    connections = atoi(words[1]), processes = atoi(words[2]), threads = atoi(words[3]), active = atoi(words[4]);
    seconds = atof(words[5]);
    int port[2], ready[2], go[2], done[2], status;
    in_port_t number;
    need(pipe(port) == 0 && pipe(ready) == 0 && pipe(go) == 0 && pipe(done) == 0, "pipe");
    pid_t server = begin();
    if (server == 0)
        serve(port[1], go[1], done[0]);
    need(read(port[0], &number, sizeof number) == sizeof number, "read");
    for (int i = 0; i < processes; i++) {
        if (begin() == 0)
            ask(i, number, ready[1], go[0], done[1]);
        get(ready[0]);
    }
    need(waitpid(server, &status, 0) == server, "waitpid");
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}
