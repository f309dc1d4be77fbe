/* pair: connections handed from process to process: closed by the sender at once, handed back,
 * several in one message, and never received. */
#include "contract.h"

static void worker(int channel) {
    int fds[2];
    char word[8] = "";
    take(channel, fds, 2);
    for (int i = 0; i < 2; i++) {
        wait_for(fds[i], POLLIN);
        result("worker reads", recv(fds[i], word, 4, MSG_WAITALL));
        result("worker writes", send(fds[i], word, 4, MSG_NOSIGNAL));
    }
    say("nonblocking %d", (fcntl(fds[0], F_GETFL) & O_NONBLOCK) != 0);
    fcntl(fds[0], F_SETFL, 0);
    close(fds[1]);
    hand(channel, fds, 1);
    close(fds[0]);
}

static void server(void) {
    int pair[2], fds[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        worker(pair[1]);
        fflush(stdout);
        _exit(0);
    }
    close(pair[1]);
    int listening = listener(16);
    for (int i = 0; i < 2; i++)
        fds[i] = accept(listening, NULL, NULL);
    set_nonblocking(fds[0]);
    hand(pair[0], fds, 2);
    close(fds[0]);
    close(fds[1]);
    int back, status;
    take(pair[0], &back, 1);
    waitpid(child, &status, 0);
    say("child ended %d", status);
    say("nonblocking %d", (fcntl(back, F_GETFL) & O_NONBLOCK) != 0);
    result("back, write", send(back, "back", 4, MSG_NOSIGNAL));
    close(back);
    int lost = accept(listening, NULL, NULL);
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    hand(pair[0], &lost, 1);
    result("the sender's own still works", send(lost, "mine", 4, MSG_NOSIGNAL));
    int other;
    take(pair[1], &other, 1);
    result("received by the sender itself", send(other, "copy", 4, MSG_NOSIGNAL));
    close(lost);
    result("after the first is closed", send(other, "last", 4, MSG_NOSIGNAL));
}

static void client(void) {
    int port = hear(), fds[2];
    char word[16] = "";
    for (int i = 0; i < 2; i++)
        fds[i] = dial_port(port);
    for (int i = 0; i < 2; i++) {
        write_all(fds[i], i ? "two." : "one.", 4);
        result("read", recv(fds[i], word, 4, MSG_WAITALL));
        say("%s", word);
    }
    result("the second ends", recv(fds[1], word, 4, 0));
    result("the first goes on", recv(fds[0], word, 4, MSG_WAITALL));
    say("%s", word);
    result("and ends", recv(fds[0], word, 4, 0));
    int fd = dial_port(port);
    result("read", recv(fd, word, 12, MSG_WAITALL));
    say("%s", word);
    result("the end", recv(fd, word, 4, 0));
}
