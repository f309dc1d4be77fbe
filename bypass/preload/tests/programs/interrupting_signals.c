/* pair: a read that waits ends with EINTR after siginterrupt, and after a handler that X/Open's signal has set. */
#include "contract.h"

/* siginterrupt is deprecated, and used. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static void nothing(int signal) { (void)signal; }

static pthread_t reader;
static volatile pid_t announced;

static void *alarm_once(void *unused) {
    until_it_waits(&announced);
    pthread_kill(reader, SIGALRM);
    return unused;
}

/* Again and again, should the first alarm come before the read; or once, when the read waits. */
static void read_beside_alarm(const char *name, int fd, int period_us) {
    struct itimerval soon = {{0, period_us}, {0, period_us}}, none = {{0, 0}, {0, 0}};
    char letter;
    pthread_t thread;
    reader = pthread_self();
    announced = gettid();
    if (period_us)
        setitimer(ITIMER_REAL, &soon, NULL);
    else
        need(pthread_create(&thread, NULL, alarm_once, NULL) == 0, "thread");
    outcome(name, read(fd, &letter, 1));
    int error = errno;
    if (period_us)
        setitimer(ITIMER_REAL, &none, NULL);
    else
        pthread_join(thread, NULL);
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
    result("an error for a handler", (long)signal(SIGALRM, SIG_ERR));
    say("the former one stays %d", signal(SIGALRM, SIG_DFL) == nothing);
    meet();
}

static void client(void) {
    int fd = dial();
    hear();
    usleep(600000);
    write_all(fd, "x", 1);
    meet();
}
