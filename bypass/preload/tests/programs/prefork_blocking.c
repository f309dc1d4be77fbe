/* pair: processes that block in accept of one listener, with clients of both kinds at once: one that
 * is woken for a client whom another has taken is there for the next. */
#include "contract.h"

#define CHILDREN 2
#define ROUNDS 150

static void serve(int listening) {
    for (;;) {
        int fd = accept(listening, NULL, NULL);
        if (fd < 0)
            _exit(1);
        char letter;
        ssize_t got;
        while ((got = read(fd, &letter, 1)) == 1) {
            if (letter == 'q')
                _exit(0);
            write_all(fd, &letter, 1);
        }
        if (got != 0)
            _exit(2);
        close(fd);
    }
}

static void server(void) {
    int listening = listener_on("127.0.0.1", 64), good = 0;
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++)
        if ((children[i] = fork()) == 0)
            serve(listening);
    tell(port_of(listening));
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        waitpid(children[i], &status, 0);
        good += status == 0;
    }
    say("children ended well %d", good);
}

/* A connection on which one letter was answered. Time stamps are handled by the kernel alone. */
static int answered(int port, int is_kernels) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct timeval patience = {.tv_sec = LONG_S};
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    if (is_kernels)
        need(setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &one, sizeof one) == 0, "SO_TIMESTAMP");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    char letter = 'a', answer = 0;
    write_all(fd, &letter, 1);
    need(read(fd, &answer, 1) == 1 && answer == letter, "an answer in time");
    return fd;
}

static void client(void) {
    int port = hear(), last[CHILDREN];
    for (int i = 0; i < ROUNDS; i++) {
        /* Both wake for the one; then both are needed at once. */
        close(answered(port, 1));
        int first = answered(port, i % 3 == 0), second = answered(port, 0);
        close(first);
        close(second);
    }
    say("all were answered");
    for (int i = 0; i < CHILDREN; i++) {
        last[i] = answered(port, 0);
        write_all(last[i], "q", 1);
    }
}
