/* pair: parent and child of a fork, with an earlier connection, both go on connecting. */
#include "contract.h"

#define EACH 60

static void send_back(int fd) {
    unsigned char block[16];
    need(fd >= 0, "accept");
    read_all(fd, block, sizeof block);
    write_all(fd, block, sizeof block);
    close(fd);
}

static void server(void) {
    int listening = listener(16);
    int before = accept(listening, NULL, NULL);
    for (int i = 0; i < 2 * EACH; i++)
        send_back(accept(listening, NULL, NULL));
    send_back(before);
    say("served %d", 2 * EACH + 1);
}

static int ask(int fd, int seed) {
    unsigned char sent[16], got[16];
    fill(sent, sizeof sent, seed);
    write_all(fd, sent, sizeof sent);
    read_all(fd, got, sizeof got);
    close(fd);
    return memcmp(sent, got, sizeof got) == 0;
}

static int ask_often(int port, int seed) {
    int right = 0;
    for (int i = 0; i < EACH; i++)
        right += ask(dial_port(port), seed + i * 16);
    return right;
}

static void client(void) {
    int port = hear(), before = dial_port(port);
    pid_t child = fork();
    int right = ask_often(port, child ? 0 : 100000);
    if (child == 0)
        _exit(right);
    int status;
    waitpid(child, &status, 0);
    say("parent right %d, child right %d", right, WEXITSTATUS(status));
    say("the earlier connection: right %d", ask(before, 7));
}
