/* pair: pselect and ppoll as system calls: they leave the time that was left, and know the size of a mask. */
#include <sys/syscall.h>
#include "contract.h"

struct sized_mask {
    const sigset_t *mask;
    size_t size;
};

static volatile sig_atomic_t handled;
static void handler(int number) {
    (void)number;
    handled++;
}

static long pselect_of(int fd, fd_set *set, struct timespec *time, struct sized_mask *mask) {
    FD_ZERO(set);
    FD_SET(fd, set);
    return syscall(SYS_pselect6, fd + 1, set, NULL, NULL, time, mask);
}

static void say_left(const struct timespec *time) {
    say("  some is left %d", time->tv_sec > 0 && time->tv_sec < LONG_S);
}

static void server(void) {
    int fd = serve_one();
    hear();
    write_all(fd, "x", 1);
    meet();
}

static void client(void) {
    int fd = dial();
    fd_set set;
    struct pollfd one = {fd, POLLIN, 0};
    struct timespec none = {0, 0}, little = {0, 20000000}, much = {LONG_S, 0}, wrong = {0, 1000000000};
    result("pselect6 without waiting", pselect_of(fd, &set, &none, NULL));
    result("pselect6 for a while", pselect_of(fd, &set, &little, NULL));
    say("  nothing is left %d", little.tv_sec == 0 && little.tv_nsec == 0);
    result("pselect6 with a wrong time", pselect_of(fd, &set, &wrong, NULL));
    say("  which stays %ld", wrong.tv_nsec);
    little.tv_nsec = 20000000;
    result("ppoll for a while", syscall(SYS_ppoll, &one, 1, &little, NULL, 8));
    say("  nothing is left %d", little.tv_sec == 0 && little.tv_nsec == 0);

    sigset_t empty, blocked;
    sigemptyset(&empty);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, NULL);
    struct sized_mask mask = {&empty, 8}, long_mask = {&empty, 16}, no_mask = {NULL, 16};
    result("pselect6 with a mask too long", pselect_of(fd, &set, &none, &long_mask));
    result("pselect6 with a size alone", pselect_of(fd, &set, &none, &no_mask));
    result("ppoll with a mask too long", syscall(SYS_ppoll, &one, 1, &none, &empty, 16));
    raise(SIGUSR1);
    result("pselect6 with a signal", pselect_of(fd, &set, &much, &mask));
    say("  handled %d", handled);
    say_left(&much);
    raise(SIGUSR1);
    much = (struct timespec){LONG_S, 0};
    result("ppoll with a signal", syscall(SYS_ppoll, &one, 1, &much, &empty, 8));
    say("  handled %d", handled);
    say_left(&much);

    tell(0);
    much = (struct timespec){LONG_S, 0};
    result("pselect6", pselect_of(fd, &set, &much, &mask));
    say("  readable %d", FD_ISSET(fd, &set) != 0);
    say("  some is left %d", much.tv_sec > 0 || much.tv_nsec > 0);
    much = (struct timespec){LONG_S, 0};
    result("ppoll", syscall(SYS_ppoll, &one, 1, &much, NULL, 8));
    say("  %s", events(one.revents));
    meet();
}
