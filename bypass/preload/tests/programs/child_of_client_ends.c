/* pair: a child of the client, which has a connection of it, too, ends after another acceptor has begun: that one goes
 * on to get the client's connections. */
#include "contract.h"

#define CONNECTIONS 4

static void first_acceptor(int listening) {
    need(accept(listening, NULL, NULL) >= 0, "accept");
    tell(0);
    for (;;)
        pause();
}

static void second_acceptor(int listening) {
    for (;;) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        write_all(fd, "k", 1);
        close(fd);
    }
}

static pid_t started(void (*work)(int), int listening) {
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0)
        work(listening);
    return child;
}

static void server(void) {
    int listening = listener(16);
    pid_t first = started(first_acceptor, listening);
    hear();
    pid_t second = started(second_acceptor, listening);
    close(listening);
    hear();
    kill(first, SIGKILL);
    kill(second, SIGKILL);
    waitpid(first, NULL, 0);
    waitpid(second, NULL, 0);
}

static int is_served(int port) {
    char letter = 0;
    int fd = dial_port(port);
    wait_for(fd, POLLIN);
    int got = read(fd, &letter, 1) == 1 && letter == 'k';
    close(fd);
    return got;
}

static void client(void) {
    int port = hear(), first = dial_port(port), until[2], status;
    need(first >= 0 && pipe(until) == 0, "pipe");
    hear();
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(until[1]);
        _exit(read(until[0], &byte, 1) != 0);
    }
    tell(0);
    int served = is_served(port);
    close(until[1]);
    need(waitpid(child, &status, 0) == child, "waitpid");
    /* Other processes are notified of the end. */
    usleep(100000);
    for (int i = 1; i < CONNECTIONS; i++)
        served += is_served(port);
    say("child ended %d, served %d of %d", status, served, CONNECTIONS);
    tell(0);
}
