/* pair: ppoll and pselect that may not wait let a signal in that only their mask admits; epoll_pwait does not. */
#include "contract.h"

static volatile sig_atomic_t handled;

static void handler(int number) { handled += number == SIGUSR1; }

static void server(void) {
    int fd = serve_one();
    hear();
    write_all(fd, "x", 1);
    hear();
}

static void every_wait(int fd, int set) {
    const struct timespec at_once = {0, 0};
    struct epoll_event event;
    struct pollfd one = {fd, POLLIN, 0};
    sigset_t empty;
    fd_set readable;
    sigemptyset(&empty);
    FD_ZERO(&readable);
    FD_SET(fd, &readable);
    raise(SIGUSR1);
    result("epoll_pwait", epoll_pwait(set, &event, 1, 0, &empty));
    say("handled %d", handled);
    result("ppoll", ppoll(&one, 1, &at_once, &empty));
    say("handled %d", handled);
    raise(SIGUSR1);
    result("pselect", pselect(fd + 1, &readable, NULL, NULL, &at_once, &empty));
    say("handled %d", handled);
    result("no signal waits", ppoll(&one, 1, &at_once, &empty));
}

static void client(void) {
    int fd = dial(), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigset_t blocked;
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    need(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    say("nothing is there");
    every_wait(fd, set);
    tell(0);
    wait_for(fd, POLLIN);
    say("a byte is there");
    every_wait(fd, set);
    tell(0);
}
