/* solo: a thread flushes all streams (fflush(NULL)), one of them over a connection, while others fork. */
#define SOLO
#include "contract.h"
#include <sched.h>
#include <stdatomic.h>

#define FORKS 100

static int near, far;
static FILE *stream;
static atomic_int is_over;
static atomic_long written;
static volatile pid_t announced;

static void connect_both(void) {
    int listening = listener_on("127.0.0.1", 16);
    near = dial_port(port_of(listening));
    far = accept(listening, NULL, NULL);
    need(far >= 0, "accept");
    close(listening);
    stream = fdopen(near, "w");
    need(stream != NULL, "fdopen");
}

static void *flush_often(void *unused) {
    while (!is_over) {
        written += fprintf(stream, "line\n");
        fflush(NULL);
        sched_yield();
    }
    fclose(stream);
    return unused;
}

static void *read_to_end(void *total) {
    char block[4096];
    ssize_t got;
    while ((got = read(far, block, sizeof block)) > 0)
        *(long *)total += got;
    return total;
}

/* The child opens and closes a stream, for which it needs libc's list of them. */
static int fork_once(void) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        FILE *file = fopen("/dev/null", "r");
        _exit(!file || fclose(file) != 0);
    }
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

static void many_forks(void) {
    pthread_t flushing, reading;
    long total = 0;
    int good = 0;
    connect_both();
    need(pthread_create(&reading, NULL, read_to_end, &total) == 0, "thread");
    need(pthread_create(&flushing, NULL, flush_often, NULL) == 0, "thread");
    for (int i = 0; i < FORKS; i++)
        good += fork_once();
    is_over = 1;
    pthread_join(flushing, NULL);
    pthread_join(reading, NULL);
    close(far);
    say("%d children ended well; all was read %d", good, total == written);
}

static void *flush_all(void *unused) {
    announced = gettid();
    fflush(NULL);
    return unused;
}

static void *fork_in_thread(void *good) {
    announced = gettid();
    *(int *)good = fork_once();
    is_over = 1;
    return good;
}

/* Sleeps, or has come to its end: a libc may fork without waiting for who flushes. */
static void until_it_waits_or_is_over(void) {
    for (int looks = 0; looks < 3 && !is_over;) {
        usleep(10000);
        looks = announced && is_asleep_or_over(announced) ? looks + 1 : 0;
    }
}

/* Nobody reads until the thread that flushes waits, and another one that forks: both go on then. */
static void full_connection(void) {
    static char block[1 << 16], held[1 << 22];
    pthread_t flushing, forking;
    ssize_t put;
    long sent = 0, total = 0;
    int good = 0, flags;
    connect_both();
    flags = fcntl(near, F_GETFL);
    fcntl(near, F_SETFL, flags | O_NONBLOCK);
    /* The kernel makes room for a while still. */
    for (int full = 0; full < 3;) {
        while ((put = write(near, block, sizeof block)) > 0)
            sent += put;
        usleep(10000);
        full++;
    }
    fcntl(near, F_SETFL, flags);
    setvbuf(stream, held, _IOFBF, sizeof held);
    for (int i = 0; i < 60; i++)
        sent += fwrite(block, 1, sizeof block, stream);
    announced = is_over = 0;
    need(pthread_create(&flushing, NULL, flush_all, NULL) == 0, "thread");
    until_it_waits(&announced);
    announced = 0;
    need(pthread_create(&forking, NULL, fork_in_thread, &good) == 0, "thread");
    until_it_waits_or_is_over();
    while (total < sent && (put = read(far, block, sizeof block)) > 0)
        total += put;
    pthread_join(flushing, NULL);
    pthread_join(forking, NULL);
    say("the child ended well %d; all was read %d", good, total == sent);
    fclose(stream);
    close(far);
}

static void solo(void) {
    alarm(LONG_S);
    full_connection();
    many_forks();
}
