/* solo: streams over connections are used while handlers and threads use them too; one whose number is a listener's closes it. */
#define SOLO
#include "contract.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define TIMES 300

static int near, far;
static pthread_t first;
static atomic_int count;

static void connect_both(void) {
    int listening = listener_on("127.0.0.1", 16);
    near = dial_port(port_of(listening));
    far = accept(listening, NULL, NULL);
    close(listening);
}

static void takes_stdin(int number) {
    (void)number;
    dup2(near, STDIN_FILENO);
    count++;
}

static void *interrupt(void *argument) {
    for (int i = 0; i < TIMES; i++) {
        pthread_kill(first, SIGUSR1);
        while (count <= i)
            sched_yield();
    }
    return argument;
}

/* A handler looks among the streams, wherever it has interrupted its thread. */
static void handlers(void) {
    pthread_t other;
    struct sigaction action = {.sa_handler = takes_stdin};
    dup2(near, STDIN_FILENO);
    sigaction(SIGUSR1, &action, NULL);
    first = pthread_self();
    pthread_create(&other, NULL, interrupt, NULL);
    while (count < TIMES)
        if (fileno(stdin) != STDIN_FILENO)
            say("stdin is lost");
    pthread_join(other, NULL);
    say("handlers have run %d times", count);
}

static void *write_to(void *stream) {
    for (count = 0; count < TIMES; count++)
        for (int i = 0; i < 100; i++)
            fprintf(stream, "line %d\n", i);
    return NULL;
}

/* A thread writes to a stream, and another opens it again. */
static void threads(void) {
    pthread_t other;
    FILE *stream = fdopen(far, "w");
    int failed = !freopen("/dev/null", "w", stream);
    count = 0;
    pthread_create(&other, NULL, write_to, stream);
    while (count < TIMES)
        failed += !freopen("/dev/null", "w", stream);
    pthread_join(other, NULL);
    say("failed %d times; closed %d", failed, fclose(stream));
}

static void report_end(int waiting) {
    char byte;
    wait_for(waiting, POLLIN);
    result("read", read(waiting, &byte, 1));
    close(waiting);
}

/* Clients that wait at a listener learn that it is closed, by whichever call. */
static void listeners(void) {
    int listening = listener_on("127.0.0.1", 16), waiting = dial_port(port_of(listening));
    FILE *stream = fdopen(listening, "r");
    say("closed %d", fclose(stream));
    report_end(waiting);

    close(STDIN_FILENO);
    say("listens: %d", listening = listener_on("127.0.0.1", 16));
    waiting = dial_port(port_of(listening));
    say("stdin is %s", freopen("/dev/null", "r", stdin) ? "opened again" : "lost");
    report_end(waiting);
}

static void solo(void) {
    connect_both();
    handlers();
    threads();
    listeners();
}
