/* pair: pselect and ppoll as system calls: they leave the time that was left, and know the size of a mask. */
#include <sys/mman.h>
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

/* Waits for what comes not at all and what is there, up to times that cannot be written. */
static void wait_by_constants(const char *name, int fd, short events) {
    static const struct timespec none = {0, 0};
    struct timespec *little = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *little = (struct timespec){0, 20000};
    mprotect(little, 4096, PROT_READ);
    struct pollfd one = {fd, events, 0};
    say("%s", name);
    result("ppoll, a constant of 0", syscall(SYS_ppoll, &one, 1, &none, NULL, 8));
    result("ppoll, a constant", syscall(SYS_ppoll, &one, 1, little, NULL, 8));
    fd_set set;
    result("pselect6, a constant of 0", pselect_of(fd, &set, (struct timespec *)&none, NULL));
    result("pselect6, a constant", pselect_of(fd, &set, little, NULL));
    say("  it stays %ld", little->tv_nsec);
    result("ppoll, a time of the kernel", syscall(SYS_ppoll, &one, 1, -4096L, NULL, 8));
    result("ppoll, a mask of the kernel", syscall(SYS_ppoll, &one, 1, &none, -4096L, 8));
    result("ppoll, neither", syscall(SYS_ppoll, &one, 1, -4096L, NULL, 16));
    result("ppoll, a time of the kernel and a long mask", syscall(SYS_ppoll, &one, 1, -4096L, &set, 16));
#ifdef SYS_select
    static const struct timeval nothing = {0, 0};
    FD_ZERO(&set);
    FD_SET(fd, &set);
    result("select, a constant of 0", syscall(SYS_select, fd + 1, &set, NULL, NULL, &nothing));
    FD_SET(fd, &set);
    result("select, a constant", syscall(SYS_select, fd + 1, &set, NULL, NULL, little));
#endif
    munmap(little, 4096);
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

    int ends[2];
    need(pipe(ends) == 0, "pipe");
    wait_by_constants("a connection", fd, POLLIN);
    wait_by_constants("one with room", fd, POLLOUT);
    wait_by_constants("a pipe", ends[0], POLLIN);

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
