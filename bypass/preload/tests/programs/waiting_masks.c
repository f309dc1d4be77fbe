/* pair: the signal mask of ppoll, pselect and epoll_pwait holds only while they wait. */
#include "contract.h"

static volatile sig_atomic_t handled;
static void handler(int number) {
    (void)number;
    handled++;
}

static void server(void) {
    serve_one();
    hear();
}

static int is_blocked(void) {
    sigset_t set;
    sigprocmask(SIG_SETMASK, NULL, &set);
    return sigismember(&set, SIGUSR1);
}

static void client(void) {
    int fd = dial(), epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, NULL);
    sigset_t blocked, empty;
    sigemptyset(&empty);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    struct pollfd one = {fd, POLLIN, 0};
    struct timespec time = {LONG_S, 0};

    raise(SIGUSR1);
    say("handled %d", handled);
    result("ppoll", ppoll(&one, 1, &time, &empty));
    say("handled %d blocked %d", handled, is_blocked());
    raise(SIGUSR1);
    result("epoll_pwait", epoll_pwait(epoll, &event, 1, LONG_MS, &empty));
    say("handled %d blocked %d", handled, is_blocked());
    raise(SIGUSR1);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    result("pselect", pselect(fd + 1, &set, NULL, NULL, &time, &empty));
    say("handled %d blocked %d", handled, is_blocked());
    raise(SIGUSR1);
    result("poll keeps it blocked", poll(&one, 1, 10));
    result("epoll_wait keeps it blocked", epoll_wait(epoll, &event, 1, 10));
    say("handled %d", handled);
    tell(0);
}
