/* pair: a read that waits ends with EINTR after siginterrupt, and after a handler that X/Open's signal has set. */
#include "contract.h"

/* siginterrupt is deprecated, and used. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static void nothing(int signal) { (void)signal; }

/* Again and again, should the first alarm come before the read. */
static void read_beside_alarm(const char *name, int fd, int period_us) {
    struct itimerval soon = {{0, period_us}, {0, period_us ? period_us : 300000}}, none = {{0, 0}, {0, 0}};
    char letter;
    setitimer(ITIMER_REAL, &soon, NULL);
    outcome(name, read(fd, &letter, 1));
    int error = errno;
    setitimer(ITIMER_REAL, &none, NULL);
    errno = error;
}

static void server(void) {
    int fd = serve_one();
    signal(SIGALRM, nothing);
    result("siginterrupt", siginterrupt(SIGALRM, 1));
    read_beside_alarm("after siginterrupt", fd, 50000);
    signal(SIGALRM, nothing);
    read_beside_alarm("and after signal", fd, 50000);
    need(sysv_signal(SIGALRM, nothing) == nothing, "sysv_signal");
    read_beside_alarm("after sysv_signal", fd, 0);
    struct sigaction now;
    need(sigaction(SIGALRM, NULL, &now) == 0, "sigaction");
    say("is reset: %d", now.sa_handler == SIG_DFL);
    signal(SIGALRM, nothing);
    result("siginterrupt", siginterrupt(SIGALRM, 0));
    tell(0);
    read_beside_alarm("goes on", fd, 0);
    result("of a wrong signal", siginterrupt(99, 1));
    meet();
}

static void client(void) {
    int fd = dial();
    hear();
    usleep(600000);
    write_all(fd, "x", 1);
    meet();
}
