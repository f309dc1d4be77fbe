/* pair: a connection that goes from process to process and back, many times without a pause, and one
 * that two processes send at the same time. */
#include "contract.h"

#define ROUNDS 100

/* The process that has the connection answers one word, gives it away and closes its own. */
static void answer(int fd, int channel) {
    char word[4];
    need(recv(fd, word, 4, MSG_WAITALL) == 4, "recv");
    need(send(fd, word, 4, MSG_NOSIGNAL) == 4, "send");
    hand(channel, &fd, 1);
    close(fd);
}

static void other(int channel) {
    int fd;
    for (int round = 0; round < ROUNDS; round++) {
        take(channel, &fd, 1);
        answer(fd, channel);
    }
    /* Ours is one more descriptor of the connection that the server sends, too. */
    take(channel, &fd, 1);
    hand(channel, &fd, 1);
    close(fd);
}

static void server(void) {
    int pair[2], second[2], fd, twice[2], status;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, second) == 0, "socketpair");
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        other(pair[1]);
        _exit(0);
    }
    int listening = listener(16);
    fd = accept(listening, NULL, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        answer(fd, pair[0]);
        take(pair[0], &fd, 1);
    }
    hand(pair[0], &fd, 1);
    hand(second[0], &fd, 1);
    close(fd);
    take(pair[0], &twice[0], 1);
    take(second[1], &twice[1], 1);
    waitpid(child, &status, 0);
    say("child ended %d", status);
    for (int i = 0; i < 2; i++) {
        result("write", send(twice[i], i ? "two." : "one.", 4, MSG_NOSIGNAL));
        close(twice[i]);
    }
}

static void client(void) {
    int fd = dial_port(hear()), right = 0;
    char word[9] = "";
    for (int round = 0; round < ROUNDS; round++) {
        for (int holder = 0; holder < 2; holder++) {
            write_all(fd, "ping", 4);
            right += recv(fd, word, 4, MSG_WAITALL) == 4 && memcmp(word, "ping", 4) == 0;
        }
    }
    say("right %d", right);
    result("read", recv(fd, word, 8, MSG_WAITALL));
    say("%s", word);
    result("the end", recv(fd, word, 4, 0));
}
