/* pair: one signal just when a blocked call is woken for nothing: how the JVM closes a socket in read. */
#include "contract.h"

#define ROUNDS 30

static int fd;
static volatile int code;
static volatile pid_t waiter;

static void nothing(int number) { (void)number; }

static void *reader(void *unused) {
    (void)unused;
    char byte;
    waiter = gettid();
    code = read(fd, &byte, 1) == -1 ? errno : 0;
    return NULL;
}

static void server(void) {
    int listening = listener(ROUNDS), ends = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char byte;
        int peer = accept(listening, NULL, NULL);
        ends += read(peer, &byte, 1) == 0;
        meet();
        close(peer);
    }
    say("ends %d", ends);
}

static void client(void) {
    struct sigaction action = {.sa_handler = nothing};
    sigaction(SIGUSR2, &action, NULL);
    int port = hear(), interrupted = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        fd = dial_port(port);
        waiter = 0;
        pthread_create(&thread, NULL, reader, NULL);
        until_it_waits(&waiter);
        /* Wakes the reader, which finds nothing, and the one signal that follows finds it awake. */
        shutdown(fd, SHUT_WR);
        pthread_kill(thread, SIGUSR2);
        pthread_join(thread, NULL);
        interrupted += code == EINTR;
        meet();
        close(fd);
    }
    say("interrupted %d", interrupted);
}
