/* pair: calls that have moved a part end with it at a handler, also at one with SA_RESTART; calls without a part go on. */
#include "contract.h"
#include <sys/sendfile.h>

static volatile sig_atomic_t signals;
static void count_signal(int number) {
    (void)number;
    signals++;
}

static void soon(void) {
    struct itimerval often = {{0, 100000}, {0, 100000}};
    setitimer(ITIMER_REAL, &often, NULL);
}

static void never(void) {
    struct itimerval none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &none, NULL);
}

static char big[64 << 20];

static void say_part(const char *how, ssize_t moved, ssize_t wanted) {
    never();
    say("%s: a part %d", how, moved > 0 && moved < wanted);
}

/* More than a connection holds, to a peer that reads nothing. */
static void move_much(int form, int fd) {
    if (form == 0)
        say_part("write", write(fd, big, sizeof big), sizeof big);
    if (form == 1) {
        char path[] = "/tmp/partXXXXXX";
        int file = mkstemp(path);
        unlink(path);
        need(file >= 0 && ftruncate(file, sizeof big) == 0, "a file");
        say_part("sendfile", sendfile(fd, file, NULL, sizeof big), sizeof big);
        close(file);
    }
}

static void server(void) {
    int listening = listener(16), fd = accept(listening, NULL, NULL);
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    need(fd >= 0, "accept");
    sigaction(SIGALRM, &action, NULL);
    wait_for(fd, POLLIN);
    soon();
    result("a look at all", recv(fd, big, 8, MSG_PEEK | MSG_WAITALL));
    result("all", recv(fd, big, 8, MSG_WAITALL));
    never();
    tell(0);
    soon();
    result("nothing is there", recv(fd, big, 1, MSG_WAITALL));
    never();
    meet();
    for (int form = 0; form < 2; form++) {
        int other = accept(listening, NULL, NULL);
        soon();
        move_much(form, other);
        never();
        meet();
        close(other);
    }
    say("signals came %d", signals > 0);
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    write_all(fd, "ab", 2);
    hear();
    usleep(300000);
    write_all(fd, "c", 1);
    meet();
    for (int form = 0; form < 2; form++) {
        int other = dial_port(port);
        meet();
        close(other);
    }
}
