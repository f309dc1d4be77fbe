/* pair: a process listens, and another one, which does not load the library, accepts what comes. The first one never
 * accepts, though it lives and is a client of others. */
#include "contract.h"

#define CONNECTIONS 5

/* Accepts on an inherited descriptor and sends back what comes. */
static void serve(int listening) {
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = accept(listening, NULL, NULL);
        char letter;
        need(fd >= 0, "accept");
        while (read(fd, &letter, 1) == 1)
            write_all(fd, &letter, 1);
        close(fd);
    }
}

static void server(void) {
    const char *inherited = getenv("CONTRACT_LISTENER");
    if (inherited) {
        serve(atoi(inherited));
        return;
    }
    int listening = listener_on("127.0.0.1", 16);
    char number[16];
    snprintf(number, sizeof number, "%d", listening);
    pid_t child = fork();
    if (child == 0) {
        setenv("CONTRACT_LISTENER", number, 1);
        setenv("LD_PRELOAD", "", 1);
        execl("/proc/self/exe", program_invocation_name, "server", NULL);
        need(0, "execl");
    }
    tell(port_of(listening));
    int status;
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("child ended %d", status);
}

static void client(void) {
    int port = hear(), right = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = dial_port(port);
        struct timeval patience = {.tv_sec = LONG_S};
        char answer = 0;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        write_all(fd, "x", 1);
        right += read(fd, &answer, 1) == 1 && answer == 'x';
        close(fd);
    }
    say("right answers %d", right);
}
