/* pair: a process forks while connections that it has passed on, and closed, lie in the receiver's queue: children that
 * end at once, one that ends last, and one that forks itself. */
#include "contract.h"

static void receiver(int start, int over) {
    char go;
    read_all(start, &go, 1);
    for (int i = 0; i < 2; i++) {
        int fd;
        take(over, &fd, 1);
        result("the receiver writes", send(fd, "hello", 5, MSG_NOSIGNAL));
        close(fd);
    }
    write_all(over, "e", 1);
    _exit(0);
}

static void server(void) {
    int pair[2], start[2], until[2], fds[2], status;
    char end;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    need(pipe(start) == 0 && pipe(until) == 0, "pipe");
    if (fork() == 0)
        receiver(start[0], pair[1]);
    int listening = listener(16);
    for (int i = 0; i < 2; i++)
        fds[i] = accept(listening, NULL, NULL);
    for (int i = 0; i < 2; i++) {
        hand(pair[0], &fds[i], 1);
        close(fds[i]);
        for (int child = 0; child < 3; child++)
            if (fork() == 0) {
                close(until[1]);
                if (child == 1 && fork() > 0)
                    _exit(0);
                if (child > 0)
                    read(until[0], &end, 1);
                _exit(0);
            }
    }
    write_all(start[1], "s", 1);
    read_all(pair[0], &end, 1);
    close(until[1]);
    while (wait(&status) > 0)
        ;
    say("done");
}

static void client(void) {
    int port = hear(), fds[2];
    for (int i = 0; i < 2; i++)
        fds[i] = dial_port(port);
    for (int i = 0; i < 2; i++) {
        char text[8] = "";
        result("read", recv(fds[i], text, 5, MSG_WAITALL));
        say("%s", text);
        result("the end", recv(fds[i], text, 1, 0));
    }
}
