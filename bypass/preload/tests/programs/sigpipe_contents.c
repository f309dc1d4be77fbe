/* pair: what a SIGPIPE says of itself, to a handler and to sigtimedwait, and which thread it is for. */
#include <sys/syscall.h>
#include "contract.h"

static volatile siginfo_t seen;
static volatile pid_t seen_by;

static void look(int number, siginfo_t *information, void *context) {
    (void)number;
    (void)context;
    seen = *information;
    seen_by = syscall(SYS_gettid);
}

static void say_contents(const char *name, const siginfo_t *information) {
    say("%s: signal %d, error %d, code %d, own process %d, own user %d", name, information->si_signo == SIGPIPE,
        information->si_errno, information->si_code, information->si_pid == getpid(),
        information->si_uid == getuid());
}

static void server(void) {
    close(serve_one());
    meet();
    meet();
}

static void *write_in_thread(void *fd) {
    result("write in a thread", write(*(int *)fd, "x", 1));
    say("its own signal %d", seen_by == syscall(SYS_gettid));
    return NULL;
}

static void client(void) {
    int fd = dial();
    struct sigaction action = {.sa_sigaction = look, .sa_flags = SA_SIGINFO};
    need(sigaction(SIGPIPE, &action, NULL) == 0, "sigaction");
    meet();
    wait_for(fd, POLLRDHUP);
    result("shutdown", shutdown(fd, SHUT_WR));
    result("write", write(fd, "x", 1));
    siginfo_t copy = seen;
    say_contents("handled", &copy);
    pthread_t thread;
    need(pthread_create(&thread, NULL, write_in_thread, &fd) == 0, "thread");
    pthread_join(thread, NULL);
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    result("send", send(fd, "x", 1, 0));
    sigpending(&pending);
    say("pending %d", sigismember(&pending, SIGPIPE));
    siginfo_t waited;
    struct timespec time = {LONG_S, 0};
    result("sigtimedwait", sigtimedwait(&set, &waited, &time));
    say_contents("waited for", &waited);
    meet();
}
