/* pair: as a SOCKS server works: a process without standard input accepts clients as number 0 and passes each on at
 * once, over datagrams, to processes that have closed all that they had; one passes them back, others answer them. */
#include "contract.h"

/* No number of this program's is as high. */
#define NUMBERS 128

/* What a child does that keeps its channel only, under the lowest number. */
static int begin(int channel) {
    for (int fd = 0; fd < NUMBERS; fd++)
        if (fd != channel && fd != STDOUT_FILENO && fd != STDERR_FILENO)
            close(fd);
    int lowest = dup(channel);
    close(channel);
    say("a child's channel is %d", lowest);
    write_all(lowest, "r", 1);
    return lowest;
}

/* The end of a channel to a child, which serves the other end. */
static int employ(void (*work)(int channel)) {
    int pair[2];
    need(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
        work(begin(pair[1]));
        fflush(stdout);
        _exit(0);
    }
    close(pair[1]);
    char ready;
    read_all(pair[0], &ready, 1);
    return pair[0];
}

static void answer(int fd, const char *text) {
    char word[4];
    wait_for(fd, POLLIN);
    need(recv(fd, word, 4, MSG_WAITALL) == 4, "recv");
    need(send(fd, text, 4, MSG_NOSIGNAL) == 4, "send");
}

/* Answers each client once, and passes it back. */
static void negotiate(int channel) {
    for (int i = 0; i < 3; i++) {
        int fd;
        take(channel, &fd, 1);
        answer(fd, "good");
        hand(channel, &fd, 1);
        close(fd);
    }
}

static void serve_first(int channel) {
    int fd;
    take(channel, &fd, 1);
    answer(fd, "one.");
    close(fd);
}

/* Two in one message. */
static void serve_others(int channel) {
    int fds[2];
    take(channel, fds, 2);
    for (int i = 0; i < 2; i++) {
        answer(fds[i], i ? "thr." : "two.");
        close(fds[i]);
    }
}

static int accept_one(int listening, int negotiator) {
    int fd = accept(listening, NULL, NULL);
    say("accepted as %d", fd);
    set_nonblocking(fd);
    hand(negotiator, &fd, 1);
    close(fd);
    take(negotiator, &fd, 1);
    return fd;
}

/* A channel with a number that is none of the standard ones. */
static int raised(int channel) {
    int higher = fcntl(channel, F_DUPFD, 10);
    close(channel);
    return higher;
}

static void server(void) {
    int listening = listener(16);
    int first = raised(employ(serve_first)), negotiator = raised(employ(negotiate));
    close(STDIN_FILENO);
    int fds[2] = {accept_one(listening, negotiator)};
    say("back as %d", fds[0]);
    hand(first, fds, 1);
    close(fds[0]);
    fds[0] = accept_one(listening, negotiator);
    int others = raised(employ(serve_others));
    fds[1] = accept_one(listening, negotiator);
    hand(others, fds, 2);
    close(fds[0]);
    close(fds[1]);
    int status, ended = 0;
    while (wait(&status) > 0)
        ended += status == 0;
    say("children that ended well: %d", ended);
}

static void ask(int fd) {
    char word[8] = "";
    write_all(fd, "ask.", 4);
    result("answer", recv(fd, word, 4, MSG_WAITALL));
    say("%s", word);
}

static void client(void) {
    int port = hear(), fds[3];
    char letter;
    ask(fds[0] = dial_port(port));
    ask(fds[0]);
    for (int i = 1; i < 3; i++)
        ask(fds[i] = dial_port(port));
    for (int i = 1; i < 3; i++)
        ask(fds[i]);
    for (int i = 0; i < 3; i++)
        result("the end", recv(fds[i], &letter, 1, 0));
}
