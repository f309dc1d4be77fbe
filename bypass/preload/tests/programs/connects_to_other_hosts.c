/* solo: to connect to other hosts costs no look at each of very many open descriptors. */
#define SOLO
#include "contract.h"
#include <sched.h>
#include <sys/resource.h>

#define OPEN 5000
#define HOSTS 200
/* The quickest so many of them are judged: who stands still on a processor has used it as the kernel counts. */
#define EACH 20
#define EACH_S 0.04

static double used_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void solo(void) {
    struct rlimit limit;
    if (!getenv("CONTRACT_ALONE")) {
        /* In a namespace without routes: nothing is sent. */
        int is_alone = unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
        setenv("CONTRACT_ALONE", is_alone ? "1" : "0", 1);
        execl("/proc/self/exe", program_invocation_name, "solo", NULL);
        need(0, "execl");
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (strcmp(getenv("CONTRACT_ALONE"), "1") == 0 && limit.rlim_cur > OPEN + HOSTS + 100) {
        int null = open("/dev/null", O_RDONLY);
        for (int i = 0; i < OPEN; i++)
            need(dup(null) >= 0, "dup");
        double since = 0, least = HOSTS;
        for (int i = 0; i < HOSTS; i++) {
            if (i % EACH == 0)
                since = used_s();
            char address[32];
            snprintf(address, sizeof address, "192.0.2.%d", i + 1);
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
            struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(9)};
            inet_pton(AF_INET, address, &name.sin_addr);
            need(connect(fd, (struct sockaddr *)&name, sizeof name) == -1, "connect fails");
            close(fd);
            if (i % EACH == EACH - 1 && used_s() - since < least)
                least = used_s() - since;
        }
        need(least < EACH_S, "little time");
    }
    say("little time");
}
