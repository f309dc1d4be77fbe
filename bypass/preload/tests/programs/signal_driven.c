/* pair: O_ASYNC: SIGIO or the signal of F_SETSIG for bytes, room, an end and new clients, to the process,
 * thread or group that F_SETOWN names; nothing once it is off. */
#include "contract.h"

#define REAL (SIGRTMIN + 3)

static sigset_t both;

/* The next signal within a time, with what it says of the descriptor. */
static int next(int timeout_ms, siginfo_t *info) {
    struct timespec time = {timeout_ms / 1000, timeout_ms % 1000 * 1000000};
    return sigtimedwait(&both, info, &time);
}

static void drain(void) {
    siginfo_t info;
    while (next(30, &info) > 0)
        ;
}

static void say_signal(const char *name, int fd, int band) {
    siginfo_t info;
    double until = now_s() + LONG_S;
    while (now_s() < until) {
        int number = next(LONG_MS, &info);
        if (number == SIGIO && band == 0) {
            say("%s: SIGIO", name);
            return;
        }
        if (number == REAL && info.si_fd == fd && info.si_band & band) {
            say("%s: REAL of this descriptor, %s", name, events(info.si_band & band));
            return;
        }
    }
    say("%s: no signal", name);
}

static void say_silence(const char *name) {
    siginfo_t info;
    int number = next(50, &info);
    say("%s: %s", name, number < 0 ? "none" : "a signal");
}

static void set_flags(const char *name, int fd, int flags) {
    result(name, fcntl(fd, F_SETFL, flags));
    int found = fcntl(fd, F_GETFL);
    say("O_ASYNC %d O_NONBLOCK %d", (found & O_ASYNC) != 0, (found & O_NONBLOCK) != 0);
}

static void block_signals(void) {
    sigemptyset(&both);
    sigaddset(&both, SIGIO);
    sigaddset(&both, REAL);
    need(sigprocmask(SIG_BLOCK, &both, NULL) == 0, "sigprocmask");
}

static void fill_up(int fd) {
    static char bytes[65536];
    while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
        ;
}

/* Reads until the other role has had what it waits for. */
static void empty(int fd) {
    static char bytes[65536];
    struct pollfd both[] = {{.fd = fd, .events = POLLIN}, {.fd = CHANNEL, .events = POLLIN}};
    do {
        need(poll(both, 2, LONG_MS) > 0, "poll");
        if (both[0].revents)
            need(read(fd, bytes, sizeof bytes) > 0, "read");
    } while (!both[1].revents);
}

static void owners(int fd) {
    struct f_owner_ex owner = {F_OWNER_TID, gettid()}, found = {0};
    result("nobody", fcntl(fd, F_SETOWN, 2000000000));
    result("F_SETOWN", fcntl(fd, F_SETOWN, getpid()));
    say("F_GETOWN is us %d", fcntl(fd, F_GETOWN) == getpid());
    result("F_SETOWN_EX", fcntl(fd, F_SETOWN_EX, &owner));
    result("F_GETOWN_EX", fcntl(fd, F_GETOWN_EX, &found));
    say("the thread %d", found.type == F_OWNER_TID && found.pid == gettid());
    result("F_SETOWN of the group", fcntl(fd, F_SETOWN, -getpgrp()));
    say("F_GETOWN is the group %d", fcntl(fd, F_GETOWN) == -getpgrp());
}

static void server(void) {
    block_signals();
    int listening = listener(4), fd = accept(listening, NULL, NULL), on = 1;
    for (int i = 0; i < 4; i++) {
        hear();
        write_all(fd, "bytes", 5);
        tell(0);
    }
    hear();
    empty(fd);
    hear();
    need(shutdown(fd, SHUT_WR) == 0, "shutdown");
    hear();
    /* A listener reports each client. */
    result("F_SETOWN", fcntl(listening, F_SETOWN, getpid()));
    result("FIOASYNC", ioctl(listening, FIOASYNC, &on));
    say("O_ASYNC %d", (fcntl(listening, F_GETFL) & O_ASYNC) != 0);
    tell(0);
    say_signal("a client", listening, 0);
    int second = accept(listening, NULL, NULL);
    outcome("accept", second);
    drain();
    say("an accepted socket has it not %d", (fcntl(second, F_GETFL) & O_ASYNC) == 0);
    on = 0;
    result("FIOASYNC off", ioctl(listening, FIOASYNC, &on));
    drain(); /* what was on its way */
    tell(0);
    wait_for(listening, POLLIN);
    say_silence("another client");
}

static void client(void) {
    char buffer[8];
    int port = hear(), fd = dial_port(port);
    block_signals();
    owners(fd);
    result("F_SETOWN", fcntl(fd, F_SETOWN, getpid()));
    set_flags("on", fd, O_RDWR | O_ASYNC | O_NONBLOCK);
    say_silence("nothing has come");
    tell(0);
    say_signal("bytes", fd, 0);
    hear();
    read_all(fd, buffer, 5);
    drain();
    result("F_SETSIG", fcntl(fd, F_SETSIG, REAL));
    say("F_GETSIG %d", fcntl(fd, F_GETSIG) == REAL);
    tell(0);
    say_signal("bytes", fd, POLLIN);
    hear();
    read_all(fd, buffer, 5);
    drain();
    set_flags("off", fd, O_RDWR);
    drain();
    tell(0);
    hear();
    wait_for(fd, POLLIN);
    say_silence("off");
    set_flags("on again, with bytes there", fd, O_RDWR | O_ASYNC);
    say_silence("they came before");
    tell(0);
    hear();
    say_signal("more bytes", fd, POLLIN);
    read_all(fd, buffer, 5);
    read_all(fd, buffer, 5);
    drain();
    fill_up(fd);
    tell(0);
    say_signal("room", fd, POLLOUT);
    drain();
    tell(0);
    say_signal("the end", fd, POLLIN);
    result("read", read(fd, buffer, 1));
    drain();
    tell(0);
    hear();
    int second = dial_port(port);
    hear();
    int third = dial_port(port);
    wait_for(second, POLLOUT);
    wait_for(third, POLLIN);
}
