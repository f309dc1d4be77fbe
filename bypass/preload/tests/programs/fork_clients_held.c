/* pair: several client processes have connections waiting when the server forks its first child of all, one for each
 * connection: the children of one client's connections leave the places of the others to processes that wait there. */
#include "contract.h"

#define CLIENTS 8
#define EACH 6
#define CONNECTIONS (CLIENTS * EACH)

static void server(void) {
    int listening = listener(128);
    hear();
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        serve_in_child(listening, fd);
    }
    tell(0);
    say_ended_well(CONNECTIONS);
}

/* Its exit code: how many connections were answered. */
static void one_client(int port, int ready, int go) {
    int fds[EACH], answered = 0;
    char letter = 'a', answer;
    for (int i = 0; i < EACH; i++)
        fds[i] = dial_port(port);
    write_all(ready, &letter, 1);
    need(read(go, &answer, 1) == 0, "go");
    for (int i = 0; i < EACH; i++) {
        answer = 0;
        answered += send(fds[i], &letter, 1, MSG_NOSIGNAL) == 1 && read(fds[i], &answer, 1) == 1 &&
                    answer == letter;
    }
    _exit(answered);
}

static void client(void) {
    int port = hear(), ready[2], go[2], answered = 0;
    need(pipe(ready) == 0 && pipe(go) == 0, "pipe");
    for (int i = 0; i < CLIENTS; i++) {
        pid_t child = fork();
        need(child >= 0, "fork");
        if (child == 0) {
            close(go[1]);
            one_client(port, ready[1], go[0]);
        }
    }
    for (int i = 0; i < CLIENTS; i++) {
        char letter;
        need(read(ready[0], &letter, 1) == 1, "ready");
    }
    tell(0);
    hear();
    close(go[1]);
    for (int i = 0; i < CLIENTS; i++) {
        int status;
        need(wait(&status) > 0 && WIFEXITED(status), "wait");
        answered += WEXITSTATUS(status);
    }
    say("answered %d", answered);
}
