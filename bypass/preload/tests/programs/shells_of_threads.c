/* solo: threads that start shells at once, and one that is cancelled in it, while another looks for variables. */
#define SOLO
#include "contract.h"
#include <stdatomic.h>

enum { SHELLS = 60 };

extern char **environ;

static atomic_int is_over;

static void *look(void *unused) {
    (void)unused;
    long missed = 0;
    while (!is_over)
        missed += getenv("PATH") == NULL || getenv("NEVER_SET") != NULL;
    return (void *)missed;
}

/* A shell that reports when it runs, and ends when it is asked to. */
struct shell {
    pthread_t thread;
    int said[2], told[2];
};

static void *run(void *of) {
    struct shell *shell = of;
    char command[64];
    snprintf(command, sizeof command, "echo x >/dev/fd/%d; read line </dev/fd/%d", shell->said[1], shell->told[0]);
    return (void *)(long)system(command);
}

static void begin(struct shell *shell) {
    char letter;
    need(pipe(shell->said) == 0 && pipe(shell->told) == 0, "pipe");
    need(pthread_create(&shell->thread, NULL, run, shell) == 0, "pthread_create");
    need(read(shell->said[0], &letter, 1) == 1, "read");
}

static long end(struct shell *shell) {
    void *status;
    write_all(shell->told[1], "go\n", 3);
    pthread_join(shell->thread, &status);
    return (long)status;
}

static void solo(void) {
    char **before = environ;
    int listening = listener_on("127.0.0.1", 16);
    int near = dial_port(port_of(listening));
    int far = accept(listening, NULL, NULL);

    pthread_t looker;
    void *missed;
    long failed = 0;
    pthread_create(&looker, NULL, look, NULL);
    for (int shell = 0; shell < SHELLS; shell++)
        failed += system("true") != 0;
    is_over = 1;
    pthread_join(looker, &missed);
    say("%ld shells failed, %ld variables were missed", failed, (long)missed);

    struct shell first, second;
    begin(&first);
    begin(&second);
    long of_first = end(&first);
    long of_second = end(&second);
    say("ended %ld and %ld, the environment is %s", of_first, of_second,
        environ == before ? "what it was" : "another");

    void *status;
    begin(&first);
    pthread_cancel(first.thread);
    pthread_join(first.thread, &status);
    for (size_t size = 16; size < 8192; size += 16)
        memset(malloc(size), 0x55, size);
    say("cancelled %d, PATH is %s, the environment is %s", status == PTHREAD_CANCELED,
        getenv("PATH") ? "there" : "gone", environ == before ? "what it was" : "another");

    write_all(near, "x", 1);
    char letter;
    result("still connected", read(far, &letter, 1));
}
