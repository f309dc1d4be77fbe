/* pair: ten thousand entries in one poll: connections, a listener, pipes, closed and negative
 * numbers, and the same ones again and again. */
#include "contract.h"

#define MANY 10000
#define CONNECTIONS 100

static struct pollfd entries[MANY];
static int fds[CONNECTIONS], listening, quiet[2], closed;

static void fill_entries(void) {
    for (int i = 0; i < MANY; i++) {
        const int choices[] = {-1 - i, quiet[0], closed, listening, fds[i / 5 % CONNECTIONS]};
        entries[i].fd = choices[i % 5];
        entries[i].events = i % 2 ? POLLIN : POLLIN | POLLRDHUP;
        entries[i].revents = 0x55;
    }
}

static void say_counts(const char *name, int timeout_ms) {
    long sums[5] = {0};
    fill_entries();
    int count = poll(entries, MANY, timeout_ms);
    for (int i = 0; i < MANY; i++)
        sums[i % 5] += entries[i].revents;
    say("%s: %d; %ld %ld %ld %ld %ld", name, count, sums[0], sums[1], sums[2], sums[3], sums[4]);
}

static void server(void) {
    struct rlimit limit;
    need(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    limit.rlim_cur = limit.rlim_max;
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= MANY, "RLIMIT_NOFILE");
    need(pipe(quiet) == 0, "pipe");
    closed = dup(0);
    listening = listener(CONNECTIONS);
    /* One after the other: of a burst the kernel may have some, which are not accepted in the order of all. */
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = accept(listening, NULL, NULL);
        meet();
    }
    close(closed);
    say_counts("nothing there", 0);
    meet();
    hear();
    for (int i = 0; i < CONNECTIONS; i += 10)
        wait_for(fds[i], POLLIN);
    say_counts("some have bytes", -1);
    tell(0);
    hear();
    for (int i = 1; i < CONNECTIONS; i += 10)
        wait_for(fds[i], POLLRDHUP);
    wait_for(listening, POLLIN);
    say_counts("some have ended, one has come", 5);
    limit.rlim_cur = MANY - 1;
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "RLIMIT_NOFILE");
    result("more entries than the limit", poll(entries, MANY, 0));
    tell(0);
}

static void client(void) {
    int port = hear(), mine[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) {
        mine[i] = dial_port(port);
        meet();
    }
    meet();
    for (int i = 0; i < CONNECTIONS; i += 10)
        write_all(mine[i], "x", 1);
    tell(0);
    hear();
    for (int i = 1; i < CONNECTIONS; i += 10)
        close(mine[i]);
    dial_port(port);
    tell(0);
    hear();
}
