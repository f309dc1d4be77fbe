/* pair: a blocking accept whose thread gets a signal every now and then, at whatever point it is. */
#include "contract.h"

#define CONNECTIONS 300

static volatile sig_atomic_t signals;
static void count_signal(int number) {
    (void)number;
    signals++;
}

static void server(void) {
    int listening = listener(16), good = 0;
    struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_RESTART};
    struct itimerval often = {{0, 100}, {0, 100}}, never = {{0, 0}, {0, 0}};
    need(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
    need(setitimer(ITIMER_REAL, &often, NULL) == 0, "setitimer");
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = accept(listening, NULL, NULL);
        char byte = 0;
        good += fd >= 0 && read(fd, &byte, 1) == 1 && write(fd, &byte, 1) == 1;
        close(fd);
    }
    need(setitimer(ITIMER_REAL, &never, NULL) == 0, "setitimer");
    say("served %d, signals came %d", good, signals > 0);
}

static void client(void) {
    int port = hear(), good = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = dial_port(port);
        char byte = 'x', answer = 0;
        write_all(fd, &byte, 1);
        good += read(fd, &answer, 1) == 1 && answer == byte;
        close(fd);
        usleep(i % 7 * 50);
    }
    say("answered %d", good);
}
