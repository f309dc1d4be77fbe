/* pair: a connection comes while a signal's handler runs that ends a wait with EPOLLEXCLUSIVE: the process notified
 * of it takes it, although the one that was interrupted stops then. */
#include "contract.h"

static int listening, in_handler[2], go_on[2], is_ready[2];

static void handler(int number) {
    char byte = (char)number;
    need(write(in_handler[1], &byte, 1) == 1 && read(go_on[0], &byte, 1) == 1, "pipe");
}

/* Serves until it is interrupted without a notification. */
static void serve(void) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE};
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, NULL);
    set_nonblocking(listening);
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "epoll_ctl");
    need(write(is_ready[1], "r", 1) == 1, "pipe");
    while (epoll_wait(set, &event, 1, -1) == 1) {
        int fd = accept(listening, NULL, NULL);
        if (fd >= 0)
            write_all(fd, "k", 1);
    }
    _exit(0);
}

static pid_t started(void) {
    char byte;
    pid_t child = fork();
    if (child == 0)
        serve();
    need(child > 0 && read(is_ready[0], &byte, 1) == 1, "pipe");
    return child;
}

static void server(void) {
    char byte;
    need(pipe(in_handler) == 0 && pipe(go_on) == 0 && pipe(is_ready) == 0, "pipe");
    listening = listener(16);
    pid_t other = started();
    /* The process notified first changes from one connection to the next. */
    for (int turn = 0; turn < 2; turn++) {
        pid_t interrupted = started();
        for (int before = 0; before < turn; before++) {
            tell(1);
            hear();
            hear(); /* it is served: neither is woken for it any more */
        }
        usleep(50000);
        kill(interrupted, SIGUSR1);
        need(read(in_handler[0], &byte, 1) == 1, "pipe");
        tell(1);
        hear();
        need(write(go_on[1], "g", 1) == 1, "pipe");
        hear();
        kill(interrupted, SIGKILL);
        waitpid(interrupted, NULL, 0);
    }
    tell(0);
    hear();
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
}

static void client(void) {
    int port = hear(), count = 0, served = 0;
    while (hear()) {
        int fd = dial_port(port);
        tell(0);
        count++;
        struct pollfd one = {.fd = fd, .events = POLLIN};
        served += poll(&one, 1, LONG_MS) == 1;
        tell(0);
    }
    say("served %d of %d", served, count);
    tell(0);
}
