/* pair: handlers that the kernel forgets as it calls them (SA_RESETHAND) and that write to the connection which the
 * program is writing to: no byte is lost or doubled, and the second signal has the default effect. */
#include "contract.h"
#include <sys/mman.h>

#define HANDLED 400

static int fd;
/* Shared with the process that signals: it waits until the handler is set again. */
static volatile int *handled;
static volatile int written;
static void on_alarm(int);

static void once(void) {
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESETHAND};
    need(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
}

static void put(const char *bytes, size_t length) {
    while (length > 0) {
        ssize_t put = send(fd, bytes, length, MSG_NOSIGNAL);
        if (put == -1 && errno == EINTR)
            continue;
        need(put > 0, "send");
        bytes += put;
        length -= put;
    }
}

static void on_alarm(int number) {
    (void)number;
    int error = errno;
    once();
    put("hhh", 3);
    written += 3;
    ++*handled;
    errno = error;
}

static void nothing(int number) { (void)number; }

static void default_effect(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        struct sigaction action = {.sa_handler = SIG_IGN}, was;
        sigaction(SIGUSR1, &action, NULL);
        action.sa_handler = nothing;
        action.sa_flags = SA_RESETHAND;
        sigaction(SIGUSR1, &action, NULL);
        sigaction(SIGUSR1, NULL, &was);
        say("set: ours %d, flags %x", was.sa_handler == nothing, was.sa_flags & ~0x04000000);
        raise(SIGUSR1);
        sigaction(SIGUSR1, NULL, &was);
        say("behind it: the default %d", was.sa_handler == SIG_DFL);
        raise(SIGUSR1);
        _exit(0);
    }
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("ended by signal %d", WTERMSIG(status));
}

static void server(void) {
    char bytes[500];
    fd = serve_one();
    memset(bytes, 'm', sizeof bytes);
    once();
    handled = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(handled != MAP_FAILED, "mmap");
    pid_t own = getpid(), signals = fork();
    if (signals == 0) {
        close(fd);
        for (int sent = 0; sent < HANDLED; sent++) {
            while (*handled < sent && getppid() == own)
                usleep(50); /* a loop that spins would take the core of the handler */
            usleep(sent * 7 % 150);
            if (getppid() != own)
                _exit(0);
            kill(own, SIGALRM);
        }
        _exit(0);
    }
    long mine = 0;
    while (*handled < HANDLED) {
        put(bytes, sizeof bytes);
        mine += sizeof bytes;
    }
    need(waitpid(signals, NULL, 0) == signals, "waitpid");
    shutdown(fd, SHUT_WR);
    tell((int)(mine / 100));
    tell(written);
    default_effect();
}

static void client(void) {
    static char bytes[65536];
    int from = dial();
    long counts[256] = {0};
    ssize_t got;
    while ((got = read(from, bytes, sizeof bytes)) > 0)
        for (ssize_t i = 0; i < got; i++)
            counts[(unsigned char)bytes[i]]++;
    result("the end", got);
    say("all of the program's %d", counts['m'] == hear() * 100L);
    say("all of the handlers' %d", counts['h'] == hear());
}
