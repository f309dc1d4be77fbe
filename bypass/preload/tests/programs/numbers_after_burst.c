/* solo: after a burst of connections files and sockets have numbers again that select(2) takes. */
#define SOLO
#include "contract.h"

#define CONNECTIONS 1100

static void solo(void) {
    static int ends[2 * CONNECTIONS];
    struct rlimit limit;
    need(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    limit.rlim_cur = limit.rlim_max < 20000 ? limit.rlim_max : 20000;
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    int listening = listener_on("127.0.0.1", 2048), port = port_of(listening);
    set_nonblocking(listening);
    accept(listening, NULL, NULL);
    for (int i = 0; i < CONNECTIONS; i++) {
        ends[2 * i] = dial_port(port);
        wait_for(listening, POLLIN);
        ends[2 * i + 1] = accept(listening, NULL, NULL);
        need(ends[2 * i + 1] >= 0, "accept");
    }
    for (int i = 0; i < 2 * CONNECTIONS; i++)
        close(ends[i]);
    int file = open("/dev/null", O_RDONLY);
    say("a file for select %d", file >= 0 && file < FD_SETSIZE);
    int fd = dial_port(port);
    wait_for(listening, POLLIN);
    int other = accept(listening, NULL, NULL);
    say("a connection for select %d %d", fd < FD_SETSIZE, other >= 0 && other < FD_SETSIZE);
}
