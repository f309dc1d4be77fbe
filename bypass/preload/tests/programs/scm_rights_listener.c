/* pair: two processes accept at a listener that one has passed to the other; one lets go of it. */
#include "contract.h"

#define CONNECTIONS 20

/* Takes so many connections and answers each. */
static void serve(int listening, int count, char letter) {
    for (int i = 0; i < count; i++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        write_all(fd, &letter, 1);
        close(fd);
    }
}

static void receiver(int over) {
    int listening;
    take(over, &listening, 1);
    write_all(over, "r", 1);
    char byte;
    read_all(over, &byte, 1);
    serve(listening, CONNECTIONS - 1, 'r');
    _exit(0);
}

/* Clients are waiting when the sender accepts one and closes: the others are the receiver's. */
static void pass(int is_client_known) {
    int pair[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    if (child == 0)
        receiver(pair[1]);
    close(pair[1]);
    int listening = listener(CONNECTIONS);
    if (is_client_known)
        hear();
    hand(pair[0], &listening, 1);
    char byte;
    read_all(pair[0], &byte, 1);
    tell(0);
    if (!is_client_known)
        hear();
    serve(listening, 1, 's');
    close(listening);
    write_all(pair[0], "c", 1);
    int status;
    waitpid(child, &status, 0);
    say("receiver ended %d", status);
}

static void server(void) {
    pass(0);
    pass(1);
}

static void ask(int is_known_before) {
    int port = hear(), fds[CONNECTIONS], senders = 0, receivers = 0, ends = 0;
    for (int i = 0; i < CONNECTIONS; i++)
        fds[i] = -1;
    if (is_known_before) {
        for (int i = 0; i < CONNECTIONS; i++)
            fds[i] = dial_port(port);
        tell(0);
        hear();
    } else {
        hear();
        for (int i = 0; i < CONNECTIONS; i++)
            fds[i] = dial_port(port);
        tell(0);
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        char letter = 0;
        read_all(fds[i], &letter, 1);
        senders += letter == 's';
        receivers += letter == 'r';
        ends += read(fds[i], &letter, 1) == 0;
        close(fds[i]);
    }
    say("answered by the sender %d, by the receiver %d, ends %d", senders, receivers, ends);
}

static void client(void) {
    ask(0);
    ask(1);
}
