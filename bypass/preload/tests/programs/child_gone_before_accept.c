/* pair: connections that wait to be accepted while a child of their client has them, too, and ends: the parent's close is
 * their end. */
#include "contract.h"

enum { CONNECTIONS = 3 };

static void server(void) {
    int listening = listener(16), fds[CONNECTIONS];
    char text[8] = "";
    hear();
    /* Reports of the children's ends arrive before the connections are accepted. */
    usleep(100000);
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = accept(listening, NULL, NULL);
        read_all(fds[i], text, 5);
        say("accepted with %s", text);
    }
    meet();
    for (int i = 0; i < CONNECTIONS; i++) {
        say_poll("end", fds[i], POLLIN, LONG_MS);
        result("recv", recv(fds[i], text, 1, MSG_DONTWAIT));
    }
    meet();
}

static int told[2];

static pid_t begin(int fd) {
    pid_t child = fork();
    if (child)
        return child;
    write_all(fd, "child", 5);
    write_all(told[1], "x", 1);
    for (;;)
        pause();
}

static void end(pid_t child) {
    kill(child, SIGKILL);
    need(waitpid(child, NULL, 0) == child, "waitpid");
}

static void client(void) {
    int port = hear(), fds[CONNECTIONS];
    pid_t children[CONNECTIONS];
    char letter;
    need(pipe(told) == 0, "pipe");
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = dial_port(port);
        children[i] = begin(fds[i]);
        need(read(told[0], &letter, 1) == 1, "read");
    }
    close(fds[0]);
    for (int i = 0; i < CONNECTIONS; i++)
        end(children[i]);
    close(fds[1]);
    tell(0);
    meet();
    close(fds[2]);
    meet();
}
