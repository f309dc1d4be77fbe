/* pair: what a server does before it accepts connections that stand. */
#include "contract.h"

#define PENDING 3

/* Each connection gets a byte and an end, and is read until the client's. */
static void serve(int listening) {
    for (int i = 0; i < PENDING; i++) {
        char bytes[8];
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        write_all(fd, "s", 1);
        need(shutdown(fd, SHUT_WR) == 0, "shutdown");
        while (read(fd, bytes, sizeof bytes) > 0)
            ;
        close(fd);
    }
}

static void closes(int listening) { close(listening); }

static void accepts_in_child(int listening) {
    pid_t child = fork();
    if (child == 0) {
        serve(listening);
        _exit(0);
    }
    close(listening);
    say_ended_well(1);
}

static void accepts_in_child_of_two(int listening) {
    for (int i = 0; i < 2; i++)
        if (fork() == 0) {
            if (i == 1)
                serve(listening);
            _exit(0);
        }
    close(listening);
    say_ended_well(2);
}

/* A process that was there before takes the listener, which its sender closes. */
static int pair[2];
static pid_t taker;

static void start_taker(void) {
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    taker = fork();
    if (taker > 0)
        return;
    int listening;
    take(pair[1], &listening, 1);
    write_all(pair[1], "t", 1);
    serve(listening);
    _exit(0);
}

static void passes(int listening) {
    char byte;
    hand(pair[0], &listening, 1);
    read_all(pair[0], &byte, 1);
    close(listening);
    say_ended_well(1);
}

static const struct {
    const char *name;
    void (*act)(int listening);
    int is_killed;
} rounds[] = {
    {"is killed", NULL, 1},
    {"accepts", serve, 0},
    {"closes", closes, 0},
    {"accepts in a child", accepts_in_child, 0},
    {"accepts in one of two children", accepts_in_child_of_two, 0},
    {"passes", passes, 0},
};
/* The first is a program of its own: not every transport reports it to the client. */
#ifdef ONLY_KILLED
enum { FIRST = 0, END = 1 };
#else
enum { FIRST = 1, END = sizeof rounds / sizeof *rounds };
#endif

static void begin(int i) {
    int listening = listener(16);
    int first = accept(listening, NULL, NULL);
    need(first >= 0, "accept");
    write_all(first, "f", 1);
    hear();
    if (rounds[i].is_killed)
        raise(SIGKILL);
    rounds[i].act(listening);
}

/* In a process of its own, which may be killed. */
static void server(void) {
    for (int i = FIRST; i < END; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            if (rounds[i].act == passes)
                start_taker();
            begin(i);
            _exit(0);
        }
        need(waitpid(child, &status, 0) == child, "waitpid");
        say("%s: ended by signal %d, with %d", rounds[i].name, WTERMSIG(status), WEXITSTATUS(status));
        meet();
    }
}

static volatile pid_t reader;
static int of_reader;

static void say_reads(const char *name, int fd) {
    char byte = 0;
    say("%s", name);
    while (result("  read", read(fd, &byte, 1)) > 0)
        ;
}

static void *read_it(void *unused) {
    char byte;
    reader = gettid();
    ssize_t got = recv(of_reader, &byte, 1, MSG_PEEK);
    say("blocked recv %s", got == -1 ? strerrorname_np(errno) : got ? "has a byte" : "ends");
    return unused;
}

static void client(void) {
    for (int i = FIRST; i < END; i++) {
        char byte;
        int port = hear(), first = dial_port(port);
        say("%s", rounds[i].name);
        read_all(first, &byte, 1);
        int waits = dial_port(port), writes = dial_port(port), polls = dial_port(port);
        pthread_t thread;
        of_reader = waits;
        reader = 0;
        need(pthread_create(&thread, NULL, read_it, NULL) == 0, "pthread_create");
        until_it_waits(&reader);
        result("write", write(writes, "w", 1));
        tell(0);
        pthread_join(thread, NULL);
        say_reads("the one that waited", waits);
        close(waits);
        wait_for(writes, POLLIN);
        say_reads("the one that has written", writes);
        close(writes);
        wait_for(polls, POLLIN);
        say_poll("the other", polls, POLLIN, 0);
        say_reads("its bytes", polls);
        close(polls);
        close(first);
        meet();
    }
}
