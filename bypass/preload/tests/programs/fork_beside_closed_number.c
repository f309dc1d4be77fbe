/* solo: a listener and an epoll set go from number to number, the former ones are closed, and a child that another thread
 * makes meanwhile waits and accepts by the numbers that are left. */
#define SOLO
#include "contract.h"
#include <netinet/ip.h>
#include <sched.h>
#include <stdatomic.h>

#define FORKS 100

/* Each has this number or the next one: what a variable says of them may be newer than what fork has copied. */
#define LISTENING 20
#define WATCHING 30

static atomic_int is_over;
static int port;

static void move(int from, int to) {
    dup2(from, to);
    close(from);
}

static void *move_both(void *unused) {
    while (!is_over) {
        move(LISTENING, LISTENING + 1);
        move(WATCHING, WATCHING + 1);
        move(LISTENING + 1, LISTENING);
        move(WATCHING + 1, WATCHING);
        sched_yield();
    }
    return unused;
}

static int is_open(int number) { return fcntl(number, F_GETFD) >= 0; }

static int open_one(int number) { return is_open(number) ? number : number + 1; }

/* Made in the middle of a dup2, which is not what this is about. */
static int has_two(int number) { return is_open(number) && is_open(number + 1); }

static void watch(int watching, int fd) {
    struct epoll_event wish = {.events = EPOLLIN, .data.fd = fd};
    need(epoll_ctl(watching, EPOLL_CTL_ADD, fd, &wish) == 0, "EPOLL_CTL_ADD");
}

static int next_ready(int watching) {
    struct epoll_event event;
    need(epoll_wait(watching, &event, 1, LONG_MS) == 1, "epoll_wait");
    return event.data.fd;
}

/* A connection with itself, which has what was set at the listener. */
static int accepts(void) {
    char letter = 0;
    int class = 0, listening = open_one(LISTENING), watching = open_one(WATCHING);
    socklen_t length = sizeof class;
    int near = dial_port(port), was_told = next_ready(watching) == LISTENING;
    int far = accept(listening, NULL, NULL);
    need(far >= 0, "accept");
    watch(watching, far);
    write_all(near, "a", 1);
    was_told &= next_ready(watching) == far;
    read_all(far, &letter, 1);
    need(getsockopt(far, IPPROTO_IP, IP_TOS, &class, &length) == 0, "IP_TOS");
    return was_told && letter == 'a' && class == IPTOS_LOWDELAY;
}

enum { ACCEPTED, FAILED, MADE_TOO_EARLY };

static int fork_once(void) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        alarm(LONG_S);
        if (has_two(LISTENING) || has_two(WATCHING))
            _exit(MADE_TOO_EARLY);
        _exit(accepts() ? ACCEPTED : FAILED);
    }
    need(child > 0 && waitpid(child, &status, 0) == child, "a child");
    return WIFEXITED(status) ? WEXITSTATUS(status) : FAILED;
}

static void solo(void) {
    pthread_t thread;
    int accepted = 0, how = ACCEPTED;
    move(listener_on("127.0.0.1", 16), LISTENING);
    move(epoll_create1(0), WATCHING);
    watch(WATCHING, LISTENING);
    port = port_of(LISTENING);
    set_int(LISTENING, IPPROTO_IP, IP_TOS, IPTOS_LOWDELAY);
    need(pthread_create(&thread, NULL, move_both, NULL) == 0, "thread");
    while (accepted < FORKS && how != FAILED) {
        how = fork_once();
        accepted += how == ACCEPTED;
    }
    is_over = 1;
    pthread_join(thread, NULL);
    say("%d children have accepted", accepted);
}
