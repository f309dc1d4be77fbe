/* solo: a program with one thread closes a number and fills it again, as shells do to redirect, while clients come. */
#define SOLO
#include "contract.h"

enum { ROUNDS = 30, CLIENTS = 8 };

/* A process of its own that connects and waits until it is asked to end. */
static void client(int port, int listening, const int *told) {
    char letter;
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child > 0)
        return;
    close(listening);
    close(told[1]);
    dial_port(port);
    _exit(read(told[0], &letter, 1) != 0);
}

static int is_file(int fd, const struct stat *file) {
    struct stat found;
    return fstat(fd, &found) == 0 && found.st_ino == file->st_ino && found.st_dev == file->st_dev;
}

enum { DUP2, DUP, DUPFD, OPEN, SECOND_CLOSE, AFTER_CLOSE, WAYS };

/* Fills the lowest number in each way; counts for each how often it was not what was put there. */
static void fill_gaps(int kept, const struct stat *file, long *wrong) {
    for (int i = 0; i < 200; i++) {
        close(CHANNEL);
        wrong[DUP2] += dup2(kept, CHANNEL) != CHANNEL || !is_file(CHANNEL, file);
        close(CHANNEL);
        wrong[DUP] += dup(kept) != CHANNEL || !is_file(CHANNEL, file);
        close(CHANNEL);
        wrong[DUPFD] += fcntl(kept, F_DUPFD, 0) != CHANNEL || !is_file(CHANNEL, file);
        close(CHANNEL);
        wrong[OPEN] += open("/proc/self/exe", O_RDONLY) != CHANNEL || !is_file(CHANNEL, file);
        close(CHANNEL);
        wrong[SECOND_CLOSE] += close(CHANNEL) != -1;
        wrong[AFTER_CLOSE] += open("/proc/self/exe", O_RDONLY) != CHANNEL || !is_file(CHANNEL, file);
    }
}

static void solo(void) {
    int listening = listener_on("127.0.0.1", ROUNDS * CLIENTS);
    int port = port_of(listening);
    int kept = open("/proc/self/exe", O_RDONLY);
    struct stat file;
    need(fstat(kept, &file) == 0, "fstat");

    long wrong[WAYS] = {0}, accepted = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int told[2], fds[CLIENTS];
        need(pipe(told) == 0, "pipe");
        for (int i = 0; i < CLIENTS; i++)
            client(port, listening, told);
        fill_gaps(kept, &file, wrong);
        for (int i = 0; i < CLIENTS; i++)
            accepted += (fds[i] = accept(listening, NULL, NULL)) >= 0;
        close(told[1]);
        close(told[0]);
        for (int i = 0; i < CLIENTS; i++)
            close(fds[i]);
        for (int i = 0; i < CLIENTS; i++)
            need(wait(NULL) > 0, "wait");
    }
    say("not what was put there: dup2 %ld, dup %ld, F_DUPFD %ld, open %ld, a second close %ld, open after it %ld",
        wrong[DUP2], wrong[DUP], wrong[DUPFD], wrong[OPEN], wrong[SECOND_CLOSE], wrong[AFTER_CLOSE]);
    say("%ld clients accepted", accepted);
}
