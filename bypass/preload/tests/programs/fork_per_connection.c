/* pair: a server that forks a child for each connection, and more of them at once than have a place of
 * their own in what the client's process shares with them: one after the other, then all at once. */
#include "contract.h"

#define CONNECTIONS 40

/* Answers each letter with the next one, until the end. */
static void serve(int fd) {
    char letter;
    while (read(fd, &letter, 1) == 1) {
        letter++;
        if (write(fd, &letter, 1) != 1)
            _exit(1);
    }
    _exit(0);
}

static void server(void) {
    int listening = listener(64), good = 0;
    for (int i = 0; i < 2 * CONNECTIONS; i++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        if (i == CONNECTIONS)
            meet(); /* The others are there before the first of them has its child. */
        pid_t child = fork();
        if (child == 0) {
            close(listening);
            serve(fd);
        }
        need(child > 0, "fork");
        close(fd);
    }
    for (int i = 0; i < 2 * CONNECTIONS; i++) {
        int status;
        need(wait(&status) > 0, "wait");
        good += status == 0;
    }
    say("children ended well %d", good);
}

static int ask(int fd, char letter) {
    char answer = 0;
    return send(fd, &letter, 1, MSG_NOSIGNAL) == 1 && read(fd, &answer, 1) == 1 &&
           answer == letter + 1;
}

static void client(void) {
    int port = hear(), fds[CONNECTIONS], first = 0, second = 0, at_once = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = dial_port(port);
        first += ask(fds[i], 'a' + i % 10);
    }
    for (int i = 0; i < CONNECTIONS; i++)
        second += ask(fds[i], 'k' + i % 10);
    say("right answers %d and %d", first, second);
    for (int i = 0; i < CONNECTIONS; i++)
        close(fds[i]);
    usleep(200000); /* Mostly, the children are gone by then. */
    for (int i = 0; i < CONNECTIONS; i++)
        fds[i] = dial_port(port);
    meet();
    for (int i = 0; i < CONNECTIONS; i++)
        at_once += ask(fds[i], 'a' + i % 10);
    say("right answers at once %d", at_once);
    for (int i = 0; i < CONNECTIONS; i++)
        close(fds[i]);
}
