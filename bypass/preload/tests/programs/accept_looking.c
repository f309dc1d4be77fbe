/* pair: a forked child that never sleeps in a call on a socket, but looks for connections again and again, finds
 * those of clients that its parent knows. */
#include "contract.h"

static void serve(int listening) {
    char letter;
    set_nonblocking(listening);
    for (int served = 0; served < 3; served++) {
        int fd;
        while ((fd = accept(listening, NULL, NULL)) == -1)
            usleep(1000);
        while (recv(fd, &letter, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN)
            usleep(1000);
        result("answer", send(fd, &letter, 1, MSG_NOSIGNAL));
        close(fd);
    }
    _exit(0);
}

static void server(void) {
    int listening = listener(16), status;
    pid_t child = fork();
    if (child == 0) {
        alarm(LONG_S);
        serve(listening);
    }
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("child status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < 3; i++) {
        int fd = dial_port(port);
        char letter = 'x';
        result("question", send(fd, &letter, 1, MSG_NOSIGNAL));
        say_poll("answer", fd, POLLIN, LONG_MS);
        result("recv", recv(fd, &letter, 1, MSG_DONTWAIT));
        close(fd);
    }
}
