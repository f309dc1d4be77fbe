/* solo: a standard stream over a connection is opened again by a pointer from before, which waits: its number is not free
 * meanwhile, and who has the stream from between writes to the file too. */
#define SOLO
#include "contract.h"
#include <stdatomic.h>

#define TIMES 10000

static int output, listening;
static char folder[] = "/tmp/bypass-contract-XXXXXX", pipe_name[64];
static volatile pid_t reopening, writing;

struct wish {
    FILE *stream;
    const char *mode;
};

static void report(const char *what, long value) { dprintf(output, "%s = %ld\n", what, value); }

static void *reopen(void *argument) {
    struct wish *wish = argument;
    reopening = gettid();
    return freopen(pipe_name, wish->mode, wish->stream);
}

/* Both ends; the second was accepted. */
static void connect_both(int *ends) {
    ends[0] = dial_port(port_of(listening));
    ends[1] = accept(listening, NULL, NULL);
    need(ends[1] >= 0, "accept");
}

static void say_received(const char *what, int fd) {
    char text[64] = "";
    wait_for(fd, POLLIN);
    ssize_t got = read(fd, text, sizeof text - 1);
    dprintf(output, "%s: %s (%zd)\n", what, text, got);
}

static void *write_between(void *stream) {
    writing = gettid();
    report("written meanwhile", fwrite("meanwhile", 1, 9, stream) == 9 && fflush(stream) == 0);
    return stream;
}

/* A number leads to a connection and its stream is opened again; the pipe's other end. A thread that writes to the stream from
 * between waits for that. */
static int reopen_beside_accept(int number, FILE *former, const char *mode, int flags) {
    struct wish wish = {former, mode};
    FILE *between = number == 1 ? stdout : NULL;
    pthread_t thread, other_thread;
    void *made;
    int ends[2];
    reopening = writing = 0;
    need(pthread_create(&thread, NULL, reopen, &wish) == 0, "thread");
    until_it_waits(&reopening);
    if (between) {
        need(pthread_create(&other_thread, NULL, write_between, between) == 0, "thread");
        until_it_waits(&writing);
    }
    connect_both(ends);
    report("accepted by its number", ends[0] == number || ends[1] == number);
    int other = open(pipe_name, flags);
    need(other >= 0, "the pipe");
    pthread_join(thread, &made);
    if (between)
        pthread_join(other_thread, NULL);
    report("opened again", made == former);
    report("number", fileno(former));
    write_all(ends[0], "still there", 11);
    say_received("the accepted", ends[1]);
    close(ends[0]);
    close(ends[1]);
    return other;
}

static void writes(void) {
    int ends[2];
    FILE *former = stdout;
    connect_both(ends);
    dup2(ends[1], 1);
    close(ends[1]);
    FILE *between = stdout;
    fprintf(between, "written");
    int reading = reopen_beside_accept(1, former, "w", O_RDONLY);
    say_received("the first", ends[0]);
    report("the end", read(ends[0], &(char){0}, 1));
    say_received("the pipe", reading);
    fprintf(former, "to the pipe");
    fflush(former);
    say_received("the pipe", reading);
    fprintf(between, "from between");
    fflush(between);
    say_received("the pipe", reading);
    report("closed", fclose(stdout));
    report("the end", read(reading, &(char){0}, 1));
    close(reading);
    close(ends[0]);
}

static void reads(void) {
    char line[16] = "";
    int ends[2];
    FILE *former = stdin;
    connect_both(ends);
    dup2(ends[1], 0);
    close(ends[1]);
    write_all(ends[0], "one\ntwo\n", 8);
    report("read", fgets(line, sizeof line, stdin) && strcmp(line, "one\n") == 0);
    int writing = reopen_beside_accept(0, former, "r", O_WRONLY);
    write_all(writing, "three\n", 6);
    report("read", fgets(line, sizeof line, stdin) && strcmp(line, "three\n") == 0);
    close(writing);
    report("the end", fgets(line, sizeof line, former) == NULL);
    /* The next that opens the pipe waits again. */
    report("opened again", freopen("/dev/null", "r", former) == former);
    close(ends[0]);
}

static atomic_int is_over, taken;

static void *take_numbers(void *unused) {
    int made[8];
    while (!is_over) {
        for (int i = 0; i < 8; i++) {
            made[i] = dup(listening);
            taken += made[i] == 1;
        }
        for (int i = 0; i < 8; i++)
            close(made[i]);
    }
    return unused;
}

/* A thread that takes numbers all the time gets none that is opened again. One stream from between is enough. */
static void beside_others(void) {
    int ends[2], reopened = 0, others = 0;
    pthread_t thread;
    FILE *former = stdout, *between = NULL;
    connect_both(ends);
    need(pthread_create(&thread, NULL, take_numbers, NULL) == 0, "thread");
    for (int i = 0; i < TIMES; i++) {
        dup2(ends[1], 1);
        between = between ? between : stdout;
        others += stdout != between;
        reopened += freopen("/dev/null", "w", former) == former;
    }
    is_over = 1;
    pthread_join(thread, NULL);
    report("opened again", reopened);
    report("taken by others", taken);
    report("other streams", others);
    close(ends[0]);
    close(ends[1]);
}

/* Its number is the next connection's, and no thread prints there. */
static void fails(void) {
    int ends[2], next[2];
    FILE *former = stderr;
    connect_both(ends);
    dup2(ends[1], 2);
    close(ends[1]);
    FILE *between = stderr;
    report("opened again", freopen("/proc/no-such-file", "w", former) == former);
    report("the end", read(ends[0], &(char){0}, 1));
    connect_both(next);
    report("the next has the number", next[0] == 2);
    report("printed", fprintf(between, "lost") == 4 && fflush(between) == 0);
    write_all(next[0], "its own", 7);
    say_received("the next", next[1]);
    close(ends[0]);
    close(next[0]);
    close(next[1]);
}

static void remove_folder(void) {
    unlink(pipe_name);
    rmdir(folder);
}

static void solo(void) {
    output = dup(1);
    need(mkdtemp(folder) != NULL, "a folder");
    atexit(remove_folder);
    snprintf(pipe_name, sizeof pipe_name, "%s/pipe", folder);
    need(mkfifo(pipe_name, 0600) == 0, "mkfifo");
    listening = listener_on("127.0.0.1", 16);
    reads();
    beside_others();
    fails();
    writes();
}
