/* pair: a listener whose waiting client was reported, by a signal, an edge or a one-shot, costs nothing
 * until it is accepted. */
#include "contract.h"

/* Time of all threads in one look; one that looks again and again takes most of it in each. A process that stands still on a
 * processor has used it, too, as the kernel counts: one idle look of so many is enough. */
#define LOOK_MS 300
#define LOOKS_MAX 60
#define BUSY_S (LOOK_MS / 1e3 / 5)

static double used_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* Waits by epoll_wait on a set that has nothing to report, or without any. */
static void say_idle(const char *name, int set) {
    struct epoll_event event;
    int is_idle = 0, reported = 0;
    for (int looks = 0; looks < LOOKS_MAX && !is_idle; looks++) {
        double before = used_s();
        if (set >= 0)
            reported += epoll_wait(set, &event, 1, LOOK_MS) != 0;
        else
            usleep(LOOK_MS * 1000);
        is_idle = used_s() - before < BUSY_S;
    }
    say("%s: %s, reported again %d", name, is_idle ? "idle" : "busy", reported);
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
    say_idle("O_ASYNC", -1);
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
    say_idle(name, outer);
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
