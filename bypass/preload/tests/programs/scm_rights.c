/* pair: a listener passed to another process over a Unix socket, which then accepts. */
#include "contract.h"

static void server(void) {
    int pair[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    if (child == 0) {
        int listening;
        take(pair[1], &listening, 1);
        int fd = accept(listening, NULL, NULL);
        char buffer[8];
        read_all(fd, buffer, 4);
        say("child read %.4s", buffer);
        write_all(fd, "back", 4);
        _exit(0);
    }
    int listening = listener_on("127.0.0.1", 4);
    hand(pair[0], &listening, 1);
    int port = port_of(listening);
    close(listening);
    tell(port);
    int status;
    waitpid(child, &status, 0);
    say("child ended %d", status);
}

static void client(void) {
    int fd = dial();
    char buffer[8];
    write_all(fd, "ping", 4);
    read_all(fd, buffer, 4);
    say("read %.4s", buffer);
}
