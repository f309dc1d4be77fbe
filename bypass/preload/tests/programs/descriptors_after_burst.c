/* pair: a burst of connections under a low limit of descriptors: afterwards every call that makes a
 * descriptor gets as many as the limit allows. */
#include "contract.h"
#include <dirent.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

#define LIMIT 256
#define BURST 200

static int of_fopen(void) {
    FILE *file = fopen("/dev/null", "r");
    return file ? fileno(file) : -1;
}
static int of_opendir(void) {
    DIR *folder = opendir("/");
    return folder ? dirfd(folder) : -1;
}
static int of_pipe(void) {
    int pair[2];
    if (pipe(pair) != 0)
        return -1;
    close(pair[1]);
    return pair[0];
}
static int of_socketpair(void) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        return -1;
    close(pair[1]);
    return pair[0];
}
static int of_signalfd(void) {
    sigset_t none;
    sigemptyset(&none);
    return signalfd(-1, &none, 0);
}
static int of_open(void) { return open("/dev/null", O_RDONLY); }
static int of_creat(void) { return creat("/dev/null", 0600); }
static int of_eventfd(void) { return eventfd(0, 0); }
static int of_timerfd(void) { return timerfd_create(CLOCK_MONOTONIC, 0); }
static int of_memfd(void) { return memfd_create("burst", 0); }
static int of_epoll(void) { return epoll_create1(0); }
static int of_unix(void) { return socket(AF_UNIX, SOCK_STREAM, 0); }
static int of_tcp(void) { return socket(AF_INET, SOCK_STREAM, 0); }
static int of_dup(void) { return dup(1); }
static int of_fcntl(void) { return fcntl(1, F_DUPFD, 0); }

static const struct {
    const char *name;
    int (*make)(void);
} WAYS[] = {{"fopen", of_fopen},       {"opendir", of_opendir},   {"pipe", of_pipe},
            {"socketpair", of_socketpair}, {"signalfd", of_signalfd}, {"open", of_open},
            {"creat", of_creat},       {"eventfd", of_eventfd},   {"timerfd", of_timerfd},
            {"memfd", of_memfd},       {"epoll", of_epoll},
            {"unix socket", of_unix},  {"tcp socket", of_tcp},    {"dup", of_dup},
            {"F_DUPFD", of_fcntl}};

static void burst(int listening) {
    int fds[BURST];
    for (int i = 0; i < BURST; i++)
        need((fds[i] = accept(listening, NULL, NULL)) >= 0, "accept");
    meet();
    for (int i = 0; i < BURST; i++)
        close(fds[i]);
    meet();
}

/* How many there can be is not the same where the library needs some; that it is not a half is. */
static void server(void) {
    struct rlimit limit = {LIMIT, LIMIT};
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    int listening = listener(BURST);
    for (size_t way = 0; way < sizeof WAYS / sizeof *WAYS; way++) {
        if (way % 4 == 0)
            burst(listening);
        int made[LIMIT], count = 0;
        while (count < LIMIT && (made[count] = WAYS[way].make()) >= 0)
            count++;
        say("%s: %s, ended by %s", WAYS[way].name, count > LIMIT - 40 ? "nearly all" : "too few",
            count < LIMIT ? strerrorname_np(errno) : "nothing");
        for (int i = 0; i < count; i++)
            close(made[i]);
    }
    burst(listening);
    int fd = accept(listening, NULL, NULL);
    outcome("one more", fd);
    write_all(fd, "k", 1);
}

static void client(void) {
    int port = hear(), fds[BURST];
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < BURST; i++)
            fds[i] = dial_port(port);
        meet();
        meet();
        for (int i = 0; i < BURST; i++)
            close(fds[i]);
    }
    char byte;
    int fd = dial_port(port);
    read_all(fd, &byte, 1);
    say("answered");
}
