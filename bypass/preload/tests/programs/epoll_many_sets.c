/* pair: more sets wait for one listener than a client's memory has places for, one of them in another process:
 * all are notified of a connection. */
#include "contract.h"

#define SETS 70
#define IDLE 460

static int listening, told;
static volatile pid_t waiters[SETS];

static void *waiter(void *number) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "epoll_ctl");
    waiters[(long)number] = gettid();
    if (epoll_wait(set, &event, 1, -1) == 1)
        __atomic_add_fetch(&told, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

/* Sets that have looked once, and keep their places. */
static void look_once(void) {
    struct rlimit limit;
    struct epoll_event event = {.events = EPOLLIN};
    need(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    limit.rlim_cur = limit.rlim_max;
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    for (int i = 0; i < IDLE; i++) {
        int set = epoll_create1(EPOLL_CLOEXEC);
        need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "epoll_ctl");
        need(epoll_wait(set, &event, 1, 0) == 0, "epoll_wait");
    }
}

/* Waits in a set when all places are taken. */
static pid_t successor(int question, int answer) {
    pid_t child = fork();
    if (child != 0)
        return child;
    char byte;
    struct epoll_event event = {.events = EPOLLIN};
    need(read(question, &byte, 1) == 1, "pipe");
    int set = epoll_create1(EPOLL_CLOEXEC);
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "epoll_ctl");
    result("nothing yet", epoll_wait(set, &event, 1, 100));
    need(write(answer, "w", 1) == 1, "pipe");
    begin_naps();
    result("reported in another process", epoll_wait(set, &event, 1, LONG_MS));
    say("%s", naps_s() < 4 ? "in time" : "late");
    need(write(answer, "t", 1) == 1, "pipe");
    _exit(0);
}

static void server(void) {
    int down[2], up[2];
    char byte;
    need(pipe(down) == 0 && pipe(up) == 0, "pipe");
    listening = listener(16);
    /* The segment of the client is there before anybody waits. */
    int first = accept(listening, NULL, NULL);
    pid_t child = successor(down[0], up[1]);
    look_once();
    for (long i = 0; i < SETS; i++) {
        pthread_t thread;
        need(pthread_create(&thread, NULL, waiter, (void *)i) == 0, "thread");
    }
    for (int i = 0; i < SETS; i++)
        while (!waiters[i] || !is_asleep(waiters[i]))
            usleep(1000);
    need(write(down[1], "s", 1) == 1 && read(up[0], &byte, 1) == 1, "pipe");
    usleep(20000);
    tell(0);
    need(read(up[0], &byte, 1) == 1, "pipe");
    for (double start = now_s(); told < SETS && now_s() < start + LONG_S;)
        usleep(10000);
    say("reported %d", told);
    say("accepted %d", accept(listening, NULL, NULL) >= 0);
    need(waitpid(child, NULL, 0) == child, "waitpid");
    close(first);
    tell(0);
}

static void client(void) {
    int port = hear(), first = dial_port(port);
    hear();
    int second = dial_port(port);
    hear();
    close(first);
    close(second);
}
