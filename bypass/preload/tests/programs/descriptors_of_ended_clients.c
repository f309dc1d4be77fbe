/* pair: a server with few descriptors serves many short-lived client processes, and opens a file for each. */
#include "contract.h"

/* More than it may have descriptors; over packets each makes an engine. */
#define CLIENTS 36

static void server(void) {
    int listening = listener(16), failed = 0;
    /* The kernel needs the listener, a connection and three files; the rest is for the library's part of a client. */
    struct rlimit few = {32, 32};
    need(setrlimit(RLIMIT_NOFILE, &few) == 0, "setrlimit");
    for (int i = 0; i < CLIENTS; i++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        int files[3];
        for (int k = 0; k < 3; k++) {
            files[k] = open("/dev/null", O_RDONLY);
            failed += files[k] == -1;
        }
        write_all(fd, "hello", 5);
        for (int k = 0; k < 3; k++)
            close(files[k]);
        close(fd);
        /* The client's process has ended. */
        hear();
    }
    say("%d files could not be opened", failed);
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < CLIENTS; i++) {
        pid_t child = fork();
        need(child >= 0, "fork");
        if (child == 0) {
            char bytes[5];
            int fd = dial_port(port);
            read_all(fd, bytes, 5);
            _exit(0);
        }
        say_ended_well(1);
        tell(0);
    }
}
