/* pair: a process forks while another of its threads is blocked in a call on a connection: the child has the descriptors,
 * not the call, so the connection ends with the last of them and not with the child. */
#include "contract.h"

enum way { READS, WRITES, CLOSED_BEFORE, CHILD_CLOSES_LAST, WAYS };

static volatile pid_t caller;
static volatile int fd;

static void *call(void *way) {
    static char much[1 << 16];
    ssize_t got, total = 0;
    caller = gettid();
    if (way) {
        while ((got = write(fd, much, sizeof much)) > 0)
            total += got;
        say("the writer ends with %s", strerrorname_np(errno));
        return NULL;
    }
    char letter = '-';
    got = read(fd, &letter, 1);
    say("the reader got %zd %c", got, letter);
    return NULL;
}

static pid_t child_of(enum way way, int until[2], int go[2]) {
    char byte;
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child > 0)
        return child;
    close(until[1]);
    if (way == CHILD_CLOSES_LAST)
        read_all(go[0], &byte, 1);
    if (way != CLOSED_BEFORE)
        close(fd);
    /* Until the client has seen the end. */
    read(until[0], &byte, 1);
    _exit(0);
}

static void serve(int listening, enum way way) {
    pthread_t thread;
    int until[2], go[2];
    need(pipe(until) == 0 && pipe(go) == 0, "pipe");
    caller = 0;
    fd = accept(listening, NULL, NULL);
    signal(SIGPIPE, SIG_IGN);
    pthread_create(&thread, NULL, call, way == WRITES ? (void *)&fd : NULL);
    until_it_waits(&caller);
    if (way == CLOSED_BEFORE)
        close(fd);
    pid_t child = child_of(way, until, go);
    if (way == WRITES)
        shutdown(fd, SHUT_WR);
    meet();
    pthread_join(thread, NULL);
    if (way != CLOSED_BEFORE)
        close(fd);
    write_all(go[1], "g", 1);
    meet();
    for (int i = 0; i < 2; i++) {
        close(until[!i]);
        close(go[i]);
    }
    int status;
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("child status %d", status);
}

static void server(void) {
    int listening = listener(16);
    for (enum way way = 0; way < WAYS; way++)
        serve(listening, way);
}

/* What is written to a connection that both ends have closed is refused: the other side holds it no more. */
static void say_closed(int to) {
    int error = 0;
    for (int i = 0; i < 2000 && !error; i++) {
        error = send(to, "x", 1, MSG_NOSIGNAL) == -1 ? errno : 0;
        usleep(1000);
    }
    say("writing %s", error == EPIPE || error == ECONNRESET ? "is refused" : "works");
}

static void client(void) {
    char buffer[1 << 16];
    int port = hear();
    for (enum way way = 0; way < WAYS; way++) {
        int to = dial_port(port);
        ssize_t got;
        meet();
        if (way != WRITES)
            write_all(to, "x", 1);
        do {
            say_poll("wait", to, POLLIN, LONG_MS);
            got = recv(to, buffer, sizeof buffer, MSG_DONTWAIT | MSG_WAITALL);
        } while (got > 0 && way != WRITES);
        while (got > 0)
            got = recv(to, buffer, sizeof buffer, MSG_WAITALL);
        say("the end %zd", got);
        say_closed(to);
        meet();
        close(to);
    }
}
