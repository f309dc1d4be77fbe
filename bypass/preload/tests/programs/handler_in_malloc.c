/* pair: handlers that interrupt malloc, and call what a handler may call, on connections and listeners. */
#include "contract.h"

#define HANDLED 1500

static int fd, listening;
static volatile int handled;
static void *volatile kept[64];

static void on_alarm(int number) {
    (void)number;
    int error = errno;
    struct pollfd both[] = {{.fd = fd, .events = POLLIN}, {.fd = listening, .events = POLLIN}};
    fd_set set;
    struct timeval none = {0, 0};
    poll(both, 2, 0);
    FD_ZERO(&set);
    FD_SET(fd, &set);
    select(fd + 1, &set, NULL, NULL, &none);
    int other = accept(listening, NULL, NULL);
    if (other >= 0)
        close(other);
    other = socket(AF_INET, SOCK_STREAM, 0);
    close(other);
    handled++;
    errno = error;
}

static void server(void) {
    listening = listener(64);
    fd = accept(listening, NULL, NULL);
    set_nonblocking(listening);
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    need(sigaction(SIGALRM, &action, NULL) == 0, "sigaction");
    struct itimerval often = {{0, 200}, {0, 200}};
    need(setitimer(ITIMER_REAL, &often, NULL) == 0, "setitimer");
    for (unsigned i = 0; handled < HANDLED; i++) {
        unsigned place = i * 2654435761u >> 26;
        free(kept[place]);
        kept[place] = malloc(1 + i % 5000 * (i % 7));
    }
    memset(&often, 0, sizeof often);
    setitimer(ITIMER_REAL, &often, NULL);
    result("write", write(fd, "x", 1));
    /* The client may connect still: its handshakes take as long as they take. */
    hear();
}

static void client(void) {
    int port = hear(), first = dial_port(port);
    char byte;
    for (int i = 0; i < 20; i++) {
        int next = dial_port(port);
        usleep(5000);
        close(next);
    }
    tell(0);
    result("read", read(first, &byte, 1));
}
