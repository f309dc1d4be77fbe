/* pair: calls in orders that few programs make: a fork in a handler amid a read, a connection duplicated onto itself, handed
 * over after shutdown, sent to oneself, and closed by a child of vfork. */
#include "contract.h"

static volatile pid_t child;
static volatile int fd, child_closes;

static void fork_in_handler(int number) {
    (void)number;
    child = fork();
    if (child == 0 && child_closes)
        close(fd);
    if (child > 0)
        tell(0);
}

/* The signal comes from a thread that has seen the read wait. */
static void *send_signal(void *reader) {
    static volatile pid_t announced;
    announced = getpid();
    until_it_waits(&announced);
    pthread_kill((pthread_t)reader, SIGUSR1);
    return NULL;
}

static void forks_in_handler(int closes) {
    struct sigaction action = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
    pthread_t thread;
    char byte = '-';
    int status;
    sigaction(SIGUSR1, &action, NULL);
    child = -1;
    child_closes = closes;
    pthread_create(&thread, NULL, send_signal, (void *)pthread_self());
    ssize_t got = read(fd, &byte, 1);
    if (child == 0) {
        result("the child", got);
        if (!closes)
            write_all(fd, "c", 1);
        _exit(0);
    }
    pthread_join(thread, NULL);
    need(waitpid(child, &status, 0) == child, "waitpid");
    result("the parent", got);
    say("status %d", status);
}

static void duplicates_onto_itself(void) {
    char byte = '-';
    result("dup2 onto itself", dup2(fd, fd) == fd);
    result("dup3 onto itself", dup3(fd, fd, 0));
    int other = dup(fd);
    result("dup2 onto its duplicate", dup2(fd, other) == other);
    result("and back", dup2(other, fd) == fd);
    close(other);
    write_all(fd, "d", 1);
    result("read", read(fd, &byte, 1));
}

static void sends_to_itself(void) {
    int pair[2], other;
    char byte = '-';
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    int number = fd;
    hand(pair[0], &number, 1);
    close(fd);
    take(pair[1], &other, 1);
    write_all(other, "s", 1);
    result("read", read(other, &byte, 1));
    fd = other;
    close(pair[0]);
    close(pair[1]);
}

static void hands_over_shut(void) {
    int pair[2], status, number = fd;
    char byte = '-';
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t receiver = fork();
    if (receiver == 0) {
        close(fd);
        close(pair[0]);
        take(pair[1], &number, 1);
        result("written", send(number, "x", 1, MSG_NOSIGNAL));
        tell(0);
        result("read", read(number, &byte, 1));
        _exit(0);
    }
    write_all(fd, "h", 1);
    result("shutdown", shutdown(fd, SHUT_WR));
    hand(pair[0], &number, 1);
    close(fd);
    close(pair[0]);
    close(pair[1]);
    need(waitpid(receiver, &status, 0) == receiver, "waitpid");
    say("status %d", status);
}

static void child_of_vfork(void) {
    int status, number = fd;
    char byte = '-';
    pid_t one = vfork();
    if (one == 0) {
        close(number);
        _exit(0);
    }
    need(waitpid(one, &status, 0) == one, "waitpid");
    write_all(fd, "v", 1);
    result("read", read(fd, &byte, 1));
    close(fd);
}

static void server(void) {
    int listening = listener(16);
    for (int closes = 0; closes < 2; closes++) {
        fd = accept(listening, NULL, NULL);
        forks_in_handler(closes);
        close(fd);
    }
    fd = accept(listening, NULL, NULL);
    duplicates_onto_itself();
    sends_to_itself();
    hands_over_shut();
    fd = accept(listening, NULL, NULL);
    child_of_vfork();
}

static void expect(int to, const char *what) {
    char byte = '-';
    result(what, recv(to, &byte, 1, 0));
    say("%c", byte);
}

static void client(void) {
    int port = hear(), to;
    for (int closes = 0; closes < 2; closes++) {
        to = dial_port(port);
        /* Both read, or one has closed. */
        hear();
        write_all(to, "ab", closes ? 1 : 2);
        expect(to, closes ? "the end" : "from the child");
        close(to);
    }
    to = dial_port(port);
    write_all(to, "12", 2);
    expect(to, "duplicated");
    expect(to, "sent to itself");
    expect(to, "handed over");
    expect(to, "shut");
    hear();
    write_all(to, "3", 1);
    expect(to, "the end");
    close(to);
    to = dial_port(port);
    write_all(to, "4", 1);
    expect(to, "after a child of vfork");
    expect(to, "the end");
}
