/* pair: sendfile and splice whose thread gets signals, after whose handlers calls go on (SA_RESTART). */
#include "contract.h"
#include <sys/sendfile.h>

#define TOTAL (8 << 20)

static volatile sig_atomic_t signals;
static void count_signal(int number) {
    (void)number;
    signals++;
}

static void server(void) {
    static char block[1 << 16];
    int fd = serve_one();
    long total = 0;
    ssize_t got;
    while ((got = read(fd, block, sizeof block)) > 0)
        total += got;
    say("read %ld", total);
}

static void client(void) {
    int fd = dial(), file = open("/dev/zero", O_RDONLY), failed = 0, ends[2];
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    need(file >= 0 && pipe(ends) == 0, "a file and a pipe");
    need(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
    need(setitimer(ITIMER_REAL, &often, NULL) == 0, "setitimer");
    for (long left = TOTAL; left > 0;) {
        ssize_t put = sendfile(fd, file, NULL, left < 1 << 16 ? left : 1 << 16);
        failed += put < 0;
        left -= put > 0 ? put : 0;
    }
    /* Written by a child, so that the call waits for a pipe that is empty. */
    pid_t child = fork();
    if (child == 0) {
        usleep(30000);
        write_all(ends[1], "late", 4);
        _exit(0);
    }
    result("splice", splice(ends[0], NULL, fd, NULL, 4, 0));
    need(setitimer(ITIMER_REAL, &never, NULL) == 0, "setitimer");
    say("failed %d, signals came %d", failed, signals > 0);
}
