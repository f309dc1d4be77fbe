/* pair: a handler with SA_RESTART ends a call on a socket that has a timeout, and no other. */
#include "contract.h"

static void nothing(int signal) { (void)signal; }
static pthread_t target;
static volatile pid_t announced;

static void *interrupts(void *unused) {
    (void)unused;
    until_it_waits(&announced);
    pthread_kill(target, SIGUSR1);
    return NULL;
}

static void during(void) {
    pthread_t other;
    announced = gettid();
    need(pthread_create(&other, NULL, interrupts, NULL) == 0, "thread");
    pthread_detach(other);
}

static void server(void) {
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    target = pthread_self();
    int listening = listener(16), fd = accept(listening, NULL, NULL);
    struct timeval long_time = {LONG_S, 0}, none = {0, 0};
    char byte;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &long_time, sizeof long_time);
    during();
    result("read with a timeout", read(fd, &byte, 1));
    setsockopt(listening, SOL_SOCKET, SO_RCVTIMEO, &long_time, sizeof long_time);
    during();
    result("accept with a timeout", accept(listening, NULL, NULL));
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
    tell(0);
    during();
    result("read without one", read(fd, &byte, 1));
}

static void client(void) {
    int fd = dial();
    hear();
    usleep(200000);
    write_all(fd, "x", 1);
    char byte;
    read(fd, &byte, 1);
}
