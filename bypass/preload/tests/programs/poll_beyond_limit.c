/* pair: poll takes no more entries than the process may have descriptors. */
#include "contract.h"

#define LIMIT 100

static void server(void) {
    serve_one();
    hear();
}

static void client(void) {
    int fd = dial();
    struct rlimit few = {LIMIT, LIMIT};
    struct timespec at_once = {0, 0};
    struct pollfd all[LIMIT + 1];
    for (int i = 0; i <= LIMIT; i++)
        all[i] = (struct pollfd){.fd = -1};
    all[0] = (struct pollfd){.fd = fd, .events = POLLOUT};
    need(setrlimit(RLIMIT_NOFILE, &few) == 0, "setrlimit");
    result("poll of as many", poll(all, LIMIT, 0));
    result("ppoll of as many", ppoll(all, LIMIT, &at_once, NULL));
    result("poll of one more", poll(all, LIMIT + 1, 0));
    result("ppoll of one more", ppoll(all, LIMIT + 1, &at_once, NULL));
    result("poll of any number", poll(all, (nfds_t)-1, 0));
    tell(0);
}
