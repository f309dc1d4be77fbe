/* solo: whatever kind of descriptor a program makes, it may have as many as the limit allows, although sockets that it has
 * closed are kept for the next ones. */
#define SOLO
#include "contract.h"
#include <sys/mman.h>
#include <sys/pidfd.h>

#define LIMIT 128
#define SOCKETS 20

static int by_dup(void) { return dup(1); }

static int by_pidfd(void) { return pidfd_open(getpid(), 0); }

static int by_terminal(void) { return posix_openpt(O_RDWR | O_NOCTTY); }

static int by_shared_memory(void) {
    char name[64];
    snprintf(name, sizeof name, "/bypass-contract-%d", getpid());
    int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    if (fd >= 0)
        shm_unlink(name);
    return fd;
}

static int by_suffix(void) {
    char name[] = "/tmp/bypass-contract-XXXXXX.tmp";
    int fd = mkstemps(name, 4);
    if (fd >= 0)
        unlink(name);
    return fd;
}

static int by_template(void) {
    char name[] = "/tmp/bypass-contract-XXXXXX";
    int fd = mkstemp(name);
    if (fd >= 0)
        unlink(name);
    return fd;
}

static int by_stream(void) {
    FILE *stream = fopen("/dev/null", "r");
    return stream ? fileno(stream) : -1;
}

/* How many a process has that has used and closed sockets. */
static int count(int (*make)(void)) {
    struct rlimit limit = {LIMIT, LIMIT};
    int sockets[SOCKETS], made = 0, status;
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_NOFILE, &limit);
        for (int i = 0; i < SOCKETS; i++)
            sockets[i] = socket(AF_INET, SOCK_STREAM, 0);
        for (int i = 0; i < SOCKETS; i++)
            close(sockets[i]);
        while (make() >= 0)
            made++;
        _exit(errno == EMFILE ? made : 0);
    }
    need(child > 0 && waitpid(child, &status, 0) == child, "a child");
    return WEXITSTATUS(status);
}

static void solo(void) {
    static const struct {
        const char *name;
        int (*make)(void);
    } kinds[] = {
        {"pidfd_open", by_pidfd},      {"posix_openpt", by_terminal}, {"shm_open", by_shared_memory},
        {"mkstemps", by_suffix},       {"mkstemp", by_template},      {"fopen", by_stream},
    };
    int most = count(by_dup);
    say("dup makes some: %d", most > LIMIT / 2);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        say("%s: as many as dup: %d", kinds[i].name, count(kinds[i].make) == most);
}
