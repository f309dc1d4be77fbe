/* pair: siglongjmp out of a handler that has interrupted a blocked call, as programs bound a wait with
 * alarm: the connection can be used afterwards, and its close is the end of it. */
#include "contract.h"
#include <setjmp.h>
#include <sys/sendfile.h>

static sigjmp_buf before;
static char stack[64 << 10];
static char bytes[1 << 16];

static void jump(int number) {
    (void)number;
    siglongjmp(before, 1);
}

static void on_alarm(int flags) {
    struct sigaction action = {.sa_handler = jump, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
}

static void alarm_soon(int ms) {
    struct itimerval timer = {.it_value.tv_usec = ms * 1000};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void read_blocked(int fd) {
    char byte;
    result("read ends with", read(fd, &byte, 1));
}

static void peek_blocked(int fd) { result("peek ends with", recv(fd, bytes, 2, MSG_PEEK | MSG_WAITALL)); }

static void write_blocked(int fd) {
    while (write(fd, bytes, sizeof bytes) > 0)
        ;
}

static void send_file_blocked(int fd) {
    char name[] = "/tmp/jump_outXXXXXX";
    int file = mkstemp(name);
    need(file >= 0 && ftruncate(file, 64 << 20) == 0 && unlink(name) == 0, "file");
    while (sendfile(fd, file, NULL, 64 << 20) > 0)
        ;
}

static void poll_blocked(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    result("poll ends with", poll(&one, 1, LONG_MS));
}

static void accept_blocked(int fd) { result("accept ends with", accept(fd, NULL, NULL)); }

static const struct {
    const char *name;
    void (*call)(int fd);
    int flags;
} ways[] = {
    {"read", read_blocked, 0},           {"read, restarting", read_blocked, SA_RESTART},
    {"read, on a stack of its own", read_blocked, SA_ONSTACK},
    {"peek", peek_blocked, 0},           {"write", write_blocked, 0},
    {"sendfile", send_file_blocked, 0},  {"poll", poll_blocked, 0},
};
#define WAYS (sizeof ways / sizeof *ways)

/* Returns when the handler has jumped out of the call. */
static void interrupted(void (*call)(int fd), int fd) {
    if (sigsetjmp(before, 1) == 0) {
        alarm_soon(30);
        call(fd);
        say("nothing has ended the call");
        exit(1);
    }
}

static void client(void) {
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    need(sigaltstack(&own, NULL) == 0, "sigaltstack");
    int port = hear();
    for (size_t i = 0; i < WAYS; i++) {
        int fd = dial_port(port);
        on_alarm(ways[i].flags);
        for (int rounds = 0; rounds < 3; rounds++)
            interrupted(ways[i].call, fd);
        say("%s", ways[i].name);
        int other = dup(fd);
        result("close", close(fd));
        say_poll("a duplicate is open", other, POLLIN, 0);
        result("close", close(other));
        meet();
    }
    int fd = dial_port(port);
    on_alarm(0);
    interrupted(read_blocked, fd);
    tell(0);
    char byte;
    result("read", read(fd, &byte, 1));
    close(fd);
    meet();
}

static void server(void) {
    int listening = listener_on("127.0.0.1", 4);
    on_alarm(0);
    interrupted(accept_blocked, listening);
    tell(port_of(listening));
    for (size_t i = 0; i < WAYS; i++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        ssize_t got;
        hear();
        do
            wait_for(fd, POLLIN);
        while ((got = read(fd, bytes, sizeof bytes)) > 0);
        say("%s: end %zd", ways[i].name, got);
        close(fd);
        tell(0);
    }
    int fd = accept(listening, NULL, NULL);
    outcome("accept", fd);
    hear();
    write_all(fd, "x", 1);
    char byte;
    result("read", read(fd, &byte, 1));
    meet();
}
