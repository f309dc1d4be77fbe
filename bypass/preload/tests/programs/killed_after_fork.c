/* pair: children that are killed before they can do anything, and a fork that fails, leave a connection as it was:
 * its end is heard when the parent closes it. */
#include "contract.h"
#include <sched.h>

#define CHILDREN 40

static void stay_here(void) {
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    sched_setaffinity(0, sizeof here, &here);
}

static void server(void) {
    int listening = listener(16);
    int first = accept(listening, NULL, NULL), second = accept(listening, NULL, NULL);
    stay_here();
    for (int i = 0; i < CHILDREN; i++) {
        pid_t child = fork();
        if (child == 0)
            for (;;)
                pause();
        kill(child, SIGKILL);
        need(waitpid(child, NULL, 0) == child, "waitpid");
    }
    close(first);
    hear();
    struct rlimit none = {0, 0};
    /* Root's processes are not counted. */
    if (getuid() == 0)
        need(setgid(65534) == 0 && setuid(65534) == 0, "setuid");
    need(setrlimit(RLIMIT_NPROC, &none) == 0, "setrlimit");
    result("fork", fork());
    close(second);
    hear();
}

static void client(void) {
    int port = hear(), first = dial_port(port), second = dial_port(port);
    char letter;
    say_poll("after the killed", first, POLLIN, LONG_MS);
    result("recv", recv(first, &letter, 1, MSG_DONTWAIT));
    tell(0);
    say_poll("after the fork that failed", second, POLLIN, LONG_MS);
    result("recv", recv(second, &letter, 1, MSG_DONTWAIT));
    tell(0);
}
