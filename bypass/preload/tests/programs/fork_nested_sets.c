/* solo: a process that forks while its threads wait on sets within sets. */
#define SOLO
#include "contract.h"

#define FORKS 30

static int outer, inner;
static volatile int is_over;

static void *waits(void *unused) {
    (void)unused;
    struct epoll_event event;
    while (!is_over)
        epoll_wait(outer, &event, 1, 1);
    return NULL;
}

static void solo(void) {
    int listening = listener_on("127.0.0.1", 4), fd = dial_port(port_of(listening));
    int other = accept(listening, NULL, NULL), good = 0;
    /* The inner one is older: whoever takes them by age meets who takes them from the outside. */
    inner = epoll_create1(0);
    outer = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    result("add", epoll_ctl(inner, EPOLL_CTL_ADD, fd, &event));
    result("nest", epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event));
    write_all(other, "x", 1);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, waits, NULL);
    alarm(60);
    for (int i = 0; i < FORKS; i++) {
        int status;
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        good += waitpid(child, &status, 0) == child && status == 0;
    }
    is_over = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    say("children %d", good);
}
