/* solo: a connect after the listener's close is refused; an unconnected socket survives exec. */
#define SOLO
#include "contract.h"

#include <sys/ioctl.h>
#include <sys/wait.h>

#define ROUNDS 50

/* Each round knows the listener from a connection before its close. */
static int refused_after_close(void) {
    int refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int listening = listener_on("127.0.0.1", 4), port = port_of(listening);
        int client = dial_port(port), peer = accept(listening, NULL, NULL);
        close(listening);
        int late = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in name = ipv4("127.0.0.1", port), own = ipv4("127.0.0.2", 0);
        bind(late, (struct sockaddr *)&own, sizeof own); /* so that it cannot meet itself */
        refused += connect(late, (struct sockaddr *)&name, sizeof name) < 0 && errno == ECONNREFUSED;
        close(late);
        close(client);
        close(peer);
    }
    return refused;
}

/* What a shell finds behind the number after exec: 0 when it is open. */
static int after_exec(int fd) {
    char command[64];
    snprintf(command, sizeof command, "test -e /proc/self/fd/%d", fd);
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(9);
    }
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
}

static void solo(void) {
    say("refused %d of %d", refused_after_close(), ROUNDS);
    int plain = socket(AF_INET, SOCK_STREAM, 0);
    int covered = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    say("plain: %d, close-on-exec: %d", after_exec(plain), after_exec(covered));
    int copy = dup(covered);
    say("its duplicate: %d", after_exec(copy));
    ioctl(copy, FIOCLEX);
    say("FIOCLEX: %d", after_exec(copy));
    ioctl(copy, FIONCLEX);
    say("FIONCLEX: %d, the other: %d", after_exec(copy), after_exec(covered));
}
