/* pair: a handler that interrupts a call which waits makes a child: both processes go on with what the call was about. */
#include "contract.h"

enum call { READ, POLL, EPOLL, ACCEPT, CALLS };
static const char *const names[] = {"read", "poll", "epoll_wait", "accept"};

static volatile pid_t child, announced;
static int listening, fd, set;

static void fork_in_handler(int number) {
    (void)number;
    child = fork();
}

static void *send_signal(void *waiter) {
    until_it_waits(&announced);
    pthread_kill((pthread_t)waiter, SIGUSR1);
    return NULL;
}

static int call(enum call which) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    struct epoll_event event;
    char byte;
    switch (which) {
    case READ:
        return read(fd, &byte, 1);
    case POLL:
        return poll(&one, 1, LONG_MS);
    case EPOLL:
        return epoll_wait(set, &event, 1, LONG_MS);
    default:
        return accept(listening, NULL, NULL) >= 0;
    }
}

/* The next bytes, or the next client, come when the process waits for them. */
static void go_on(enum call which, const char *who) {
    char byte = '-';
    tell(getpid());
    int got = call(which);
    if (which == POLL || which == EPOLL)
        got += read(fd, &byte, 1);
    say("%s: %s again %d %c", names[which], who, got, byte);
}

static void server(void) {
    struct sigaction action = {.sa_handler = fork_in_handler};
    struct epoll_event event = {.events = EPOLLIN};
    int status;
    sigaction(SIGUSR1, &action, NULL);
    listening = listener(16);
    fd = accept(listening, NULL, NULL);
    set = epoll_create1(0);
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "add");
    for (enum call which = 0; which < CALLS; which++) {
        pthread_t thread;
        announced = getpid();
        pthread_create(&thread, NULL, send_signal, (void *)pthread_self());
        int got = call(which);
        const char *error = got < 0 ? strerrorname_np(errno) : "-";
        if (child == 0) {
            say("%s: the child %d %s", names[which], got, error);
            go_on(which, "the child");
            exit(0);
        }
        pthread_join(thread, NULL);
        need(waitpid(child, &status, 0) == child, "waitpid");
        say("%s: the parent %d %s, status %d", names[which], got, error, status);
        go_on(which, "the parent");
    }
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    for (int i = 0; i < 2 * CALLS; i++) {
        pid_t waiting = hear();
        until_it_waits(&waiting);
        if (i / 2 == ACCEPT)
            dial_port(port);
        else
            write_all(fd, "x", 1);
    }
    say("%zd", read(fd, &port, 1));
}
