/* solo: sockets take the standard numbers that are free, and leave them free for files, and stdin, when they are closed. */
#define SOLO
#include "contract.h"

static void solo(void) {
    int listening = listener_on("127.0.0.1", 16), port = port_of(listening);
    for (int i = 0; i < 4; i++) {
        int near = dial_port(port), far = accept(listening, NULL, NULL);
        close(near);
        close(far);
    }

    close(STDIN_FILENO);
    int near = dial_port(port);
    say("the socket has %d", near);
    int far = accept(listening, NULL, NULL);
    write_all(near, "x", 1);
    char letter = 0;
    read_all(far, &letter, 1);
    say("it carries %c", letter);
    close(near);
    close(far);
    say("a file has %d", open("/dev/null", O_RDONLY));

    close(STDIN_FILENO);
    close(STDERR_FILENO);
    int waiting = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    say("a socket has %d", waiting);
    need(connect(waiting, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    say("the accepted one has %d", far = accept(listening, NULL, NULL));
    say("the next one is above: %d", socket(AF_INET, SOCK_STREAM, 0) > STDERR_FILENO);
    close(far);
    say("a file has %d", open("/dev/null", O_RDONLY));
    close_range(STDIN_FILENO, STDIN_FILENO, 0);
    say("a socket has %d", waiting = socket(AF_INET, SOCK_STREAM, 0));
    close(waiting);
    FILE *file = fdopen(dup(STDERR_FILENO), "r");
    close(socket(AF_INET, SOCK_STREAM, 0));
    fclose(file);
    say("a socket has %d", socket(AF_INET, SOCK_STREAM, 0));
    close(STDIN_FILENO);
    say("stdin is %s", freopen("/dev/null", "r", stdin) ? "opened again" : "lost");
}
