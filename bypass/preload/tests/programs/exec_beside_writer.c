/* pair: a thread calls exec while the first thread of its process writes: the new program writes on the same
 * connection. */
#include "written_to_the_end.h"

static int begin[2];

/* The new program is this one again. */
__attribute__((constructor)) static void new_program(void) {
    const char *number = getenv("CONTRACT_NUMBER");
    if (number)
        _exit(write(atoi(number), ".", 1) == 1 ? 0 : 1);
}

static void *become_new(void *unused) {
    static char *arguments[] = {"contract", "server", NULL};
    char byte;
    need(read(begin[0], &byte, 1) == 1, "pipe");
    execv("/proc/self/exe", arguments);
    _exit(9);
    return unused;
}

static void child(int fd) {
    char number[16];
    pthread_t thread;
    snprintf(number, sizeof number, "%d", fd);
    setenv("CONTRACT_NUMBER", number, 1);
    need(pthread_create(&thread, NULL, become_new, NULL) == 0, "thread");
    for (;;)
        write(fd, bytes, PIECE);
}

static void server(void) {
    int listening = listener(16);
    memset(bytes, 'x', PIECE);
    need(pipe(begin) == 0, "pipe");
    for (int i = 0; i < STREAMS; i++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        pid_t made = fork();
        need(made >= 0, "fork");
        if (made == 0)
            child(fd);
        close(fd);
        /* The client has read some of it. */
        hear();
        write_all(begin[1], "b", 1);
    }
    say_ended_well(STREAMS);
}

static void client(void) { read_streams(); }
