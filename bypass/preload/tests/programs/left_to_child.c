/* pair: an acceptor ends while a connection waits of a client that has ended before: a child of it that has not begun to
 * accept gets the connection. */
#include "contract.h"

static void child_of_acceptor(int listening, int until) {
    char buffer[8] = "";
    /* Until the parent has ended. */
    need(read(until, buffer, 1) == 0, "pipe");
    int fd = accept(listening, NULL, NULL);
    int got = read(fd, buffer, sizeof buffer);
    say("the child got %d %s", got, buffer);
    tell(0);
    _exit(0);
}

static void acceptor(int listening) {
    int until[2];
    need(pipe(until) == 0, "pipe");
    /* Before there is a client: the child knows none. */
    pid_t child = fork();
    if (child == 0) {
        close(until[1]);
        child_of_acceptor(listening, until[0]);
    }
    need(accept(listening, NULL, NULL) >= 0, "accept");
    tell(0);
    hear();
    exit(0);
}

static void server(void) {
    int listening = listener(16), over[2];
    char byte;
    need(pipe(over) == 0, "pipe");
    pid_t first = fork();
    if (first == 0)
        acceptor(listening);
    close(listening);
    close(over[1]);
    /* Both have ended. */
    need(read(over[0], &byte, 1) == 0, "pipe");
    waitpid(first, NULL, 0);
}

static void client(void) {
    int port = hear();
    pid_t child = fork();
    if (child == 0) {
        dial_port(port);
        hear();
        write_all(dial_port(port), "left", 4);
        exit(0);
    }
    waitpid(child, NULL, 0);
    tell(0);
    hear();
}
