/* pair: another process that holds a listener makes it block, and not block again: accept does as it says. */
#include "contract.h"

static int listening;

static void in_child(int on) {
    pid_t child = fork();
    if (child == 0) {
        int flags = fcntl(listening, F_GETFL);
        flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
        result("child sets flags", fcntl(listening, F_SETFL, flags));
        _exit(0);
    }
    int status;
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("parent has O_NONBLOCK %d", !!(fcntl(listening, F_GETFL) & O_NONBLOCK));
}

static void on_alarm(int signal) { (void)signal; }

static void accept_within(const char *name, int ms) {
    /* Again and again, should the first alarm come before the accept. */
    struct timeval in = {ms / 1000, ms % 1000 * 1000};
    struct itimerval time = {in, in}, none = {0};
    setitimer(ITIMER_REAL, &time, NULL);
    outcome(name, accept(listening, NULL, NULL));
    setitimer(ITIMER_REAL, &none, NULL);
}

static void server(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    listening = listener(8);
    set_nonblocking(listening);
    int first = -1;
    hear();
    wait_for(listening, POLLIN);
    outcome("first", first = accept(listening, NULL, NULL));
    accept_within("nobody", LONG_MS);
    in_child(0);
    accept_within("a signal", 100);
    tell(0);
    accept_within("one who comes", LONG_MS);
    in_child(1);
    accept_within("no client again", LONG_MS);
    in_child(0);
    tell(0);
    accept_within("one more", LONG_MS);
    tell(0);
}

static void client(void) {
    int port = hear(), fds[3];
    fds[0] = dial_port(port);
    tell(0);
    for (int i = 1; i < 3; i++) {
        hear();
        /* Mostly, accept waits by then. */
        usleep(50000);
        fds[i] = dial_port(port);
    }
    hear();
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}
