/* pair: a listener whose waiting client was reported, by a signal, an edge or a one-shot, costs nothing
 * until it is accepted. */
#include "contract.h"

/* Time of all threads in a second of waiting; one that looks again and again takes most of it. */
#define BUSY_S 0.2

static double used_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void say_idle(const char *name, double before) {
    double used = used_s() - before;
    say("%s: %s", name, used < BUSY_S ? "idle" : "busy");
}

static void sleep_a_second(void) {
    double until = now_s() + 1;
    while (now_s() < until)
        usleep(10000);
}

static void by_signal(int listening) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGIO);
    need(sigprocmask(SIG_BLOCK, &set, NULL) == 0, "sigprocmask");
    need(fcntl(listening, F_SETOWN, getpid()) == 0, "F_SETOWN");
    need(fcntl(listening, F_SETFL, O_RDWR | O_ASYNC) == 0, "O_ASYNC");
    meet();
    struct timespec time = {LONG_S, 0};
    result("SIGIO", sigtimedwait(&set, NULL, &time) == SIGIO);
    double before = used_s();
    sleep_a_second();
    say_idle("O_ASYNC", before);
    need(fcntl(listening, F_SETFL, O_RDWR) == 0, "off");
    outcome("accept", accept(listening, NULL, NULL));
}

static void by_set(int listening, const char *name, unsigned flags) {
    int inner = epoll_create1(0), outer = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | flags, .data.u64 = 1};
    need(epoll_ctl(inner, EPOLL_CTL_ADD, listening, &event) == 0, "add a listener");
    event.events = EPOLLIN;
    need(epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) == 0, "add a set");
    meet();
    need(epoll_wait(outer, &event, 1, LONG_MS) == 1, "outer");
    need(epoll_wait(inner, &event, 1, LONG_MS) == 1, "inner");
    double before = used_s();
    result("outer again", epoll_wait(outer, &event, 1, 1000));
    say_idle(name, before);
    close(outer);
    close(inner);
    outcome("accept", accept(listening, NULL, NULL));
}

static void server(void) {
    int listening = listener(16);
    by_signal(listening);
    by_set(listening, "an edge", EPOLLET);
    by_set(listening, "a one-shot", EPOLLONESHOT);
    meet();
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < 3; i++) {
        meet();
        dial_port(port);
    }
    meet();
}
