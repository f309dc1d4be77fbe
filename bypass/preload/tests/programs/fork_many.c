/* pair: a server that forks for each of two hundred connections, of which its parent keeps every other one too;
 * children are killed at their start and while they serve, and a connection ends with the last that holds it. */
#include "contract.h"

#define CONNECTIONS 200
/* Of ten connections the child of the last one is killed at once. */
#define IS_KILLED_AT_ONCE(i) ((i) % 10 == 9)
/* The parent keeps the connection. */
#define IS_KEPT(i) ((i) % 2 == 0)
/* The child is killed later. */
#define IS_KILLED(i) (!IS_KILLED_AT_ONCE(i) && (i) % 4 < 2)

static void echo(int fd) {
    char letter;
    while (read(fd, &letter, 1) == 1)
        write_all(fd, &letter, 1);
    _exit(0);
}

static void server(void) {
    int listening = listener(CONNECTIONS), fds[CONNECTIONS], status, well = 0;
    pid_t children[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = accept(listening, NULL, NULL);
        need(fds[i] >= 0, "accept");
        need((children[i] = fork()) >= 0, "fork");
        if (children[i] == 0) {
            close(listening);
            for (int other = 0; other < i; other++)
                if (fds[other] >= 0)
                    close(fds[other]);
            echo(fds[i]);
        }
        if (IS_KILLED_AT_ONCE(i)) {
            kill(children[i], SIGKILL);
            need(waitpid(children[i], NULL, 0) == children[i], "waitpid");
        }
        if (!IS_KEPT(i)) {
            close(fds[i]);
            fds[i] = -1;
        }
    }
    hear();
    for (int i = 0; i < CONNECTIONS; i++) {
        if (!IS_KILLED(i))
            continue;
        kill(children[i], SIGKILL);
        need(waitpid(children[i], &status, 0) == children[i], "waitpid");
    }
    for (int i = 0; i < CONNECTIONS; i++)
        if (IS_KEPT(i)) {
            write_all(fds[i], "p", 1);
            close(fds[i]);
        }
    tell(0);
    for (int i = 0; i < CONNECTIONS; i++)
        if (!IS_KILLED(i) && !IS_KILLED_AT_ONCE(i))
            well += waitpid(children[i], &status, 0) == children[i] && status == 0;
    say("children ended well %d", well);
}

static int is_echoed(int fd) {
    char answer = 0;
    return write(fd, "e", 1) == 1 && read(fd, &answer, 1) == 1 && answer == 'e';
}

static void client(void) {
    int port = hear(), fds[CONNECTIONS], echoed = 0, of_parent = 0, over = 0, going_on = 0;
    struct timeval wait = {.tv_sec = LONG_S};
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = dial_strictly(port);
        need(setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0, "SO_RCVTIMEO");
    }
    for (int i = 0; i < CONNECTIONS; i++)
        echoed += !IS_KILLED_AT_ONCE(i) && is_echoed(fds[i]);
    say("echoed %d", echoed);
    tell(0);
    hear();
    for (int i = 0; i < CONNECTIONS; i++) {
        char byte = 0;
        if (IS_KEPT(i))
            of_parent += read(fds[i], &byte, 1) == 1 && byte == 'p';
        if (IS_KILLED(i) || IS_KILLED_AT_ONCE(i))
            over += read(fds[i], &byte, 1) == 0;
        else
            going_on += is_echoed(fds[i]);
        close(fds[i]);
    }
    say("the parent's bytes %d", of_parent);
    say("over %d", over);
    say("going on %d", going_on);
}
