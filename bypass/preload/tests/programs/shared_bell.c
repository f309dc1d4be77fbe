/* pair: two processes hold one connection, each has it in a set of its own; one lets go. */
#include "contract.h"

static int set_with(int fd) {
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    need(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "set");
    return set;
}

/* The client sends its next byte when it is asked to, a moment later: mostly to a sleeper. */
static void say_event(const char *who, int set) {
    struct epoll_event event = {0};
    int count = epoll_wait(set, &event, 1, LONG_MS);
    say("%s: %s", who, count == 1 ? events(event.events) : "nothing");
}

static void read_one(int fd) {
    char byte;
    read_all(fd, &byte, 1);
    say("read %c", byte);
}

static void end_of(pid_t child) {
    int status;
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("child ended %d", status);
}

static void after_fork(int fd) {
    int set = set_with(fd);
    pid_t child = fork();
    if (child == 0) {
        close(fd);
        _exit(0);
    }
    end_of(child);
    tell(0);
    say_event("parent, after the child's close", set);
    read_one(fd);
    child = fork();
    if (child == 0) {
        int own = set_with(fd);
        tell(0);
        say_event("child, in a set of its own", own);
        close(own);
        close(fd);
        _exit(0);
    }
    end_of(child);
    say_event("parent, the same byte", set);
    read_one(fd);
    tell(0);
    say_event("parent, the next", set);
    read_one(fd);
    close(set);
}

/* The receiver has it in its set before the sender closes; the sender had it in one, too. */
static void after_passing(int fd) {
    int pair[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    if (child == 0) {
        close(fd);
        int mine;
        take(pair[1], &mine, 1);
        int set = set_with(mine);
        char byte;
        write_all(pair[1], "r", 1);
        read_all(pair[1], &byte, 1);
        tell(0);
        say_event("receiver, after the sender's close", set);
        read_one(mine);
        write_all(mine, "x", 1);
        _exit(0);
    }
    int set = set_with(fd);
    hand(pair[0], &fd, 1);
    char byte;
    read_all(pair[0], &byte, 1);
    close(fd);
    close(set);
    write_all(pair[0], "c", 1);
    end_of(child);
}

static void server(void) {
    int fd = serve_one();
    after_fork(fd);
    after_passing(fd);
}

static void client(void) {
    int fd = dial();
    for (const char *byte = "abcd"; *byte; byte++) {
        hear();
        usleep(20000);
        write_all(fd, byte, 1);
    }
    wait_for(fd, POLLIN);
    char answer;
    read_all(fd, &answer, 1);
    say("answer %c", answer);
    result("then", read(fd, &answer, 1));
}
