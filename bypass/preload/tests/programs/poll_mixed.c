/* pair: poll, ppoll, select and pselect over sockets, pipes and eventfds at once. */
#include "contract.h"

static int fd, pipes[2], event_fd;

static void poll_all(const char *name, int timeout_ms) {
    struct pollfd set[] = {{fd, POLLIN | POLLOUT, 0},
                           {pipes[0], POLLIN, 0},
                           {-1, POLLIN, 55},
                           {event_fd, POLLIN, 0},
                           {900, POLLIN, 0}};
    result(name, poll(set, 5, timeout_ms));
    for (int i = 0; i < 5; i++)
        say("  %d: %s", i, events(set[i].revents));
}

static void select_all(const char *name) {
    fd_set readable, writable, special;
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    FD_ZERO(&special);
    FD_SET(fd, &readable);
    FD_SET(pipes[0], &readable);
    FD_SET(event_fd, &readable);
    FD_SET(fd, &writable);
    FD_SET(fd, &special);
    struct timeval time = {0, 0};
    result(name, select(event_fd + 1, &readable, &writable, &special, &time));
    say("  read %d %d %d write %d special %d", FD_ISSET(fd, &readable) != 0,
        FD_ISSET(pipes[0], &readable) != 0, FD_ISSET(event_fd, &readable) != 0,
        FD_ISSET(fd, &writable) != 0, FD_ISSET(fd, &special) != 0);
}

static void server(void) {
    int peer = serve_one();
    hear();
    write_all(peer, "x", 1);
    hear();
    close(peer);
    tell(0);
}

static void client(void) {
    char byte;
    fd = dial();
    need(pipe(pipes) == 0, "pipe");
    event_fd = eventfd(0, EFD_NONBLOCK);
    poll_all("nothing but space", 0);
    select_all("select");
    need(write(pipes[1], "p", 1) == 1, "pipe write");
    eventfd_write(event_fd, 3);
    poll_all("pipe and eventfd", LONG_MS);
    select_all("select");
    tell(0);
    wait_for(fd, POLLIN);
    poll_all("all", LONG_MS);
    select_all("select");
    read_all(fd, &byte, 1);
    read_all(pipes[0], &byte, 1);
    struct timespec short_time = {0, 20000000};
    struct pollfd two[] = {{fd, POLLIN, 0}, {pipes[0], POLLIN, 0}};
    result("ppoll that waits", ppoll(two, 2, &short_time, NULL));
    result("poll of nothing", poll(NULL, 0, 5));
    tell(0);
    hear();
    wait_for(fd, POLLRDHUP);
    poll_all("peer closed", 0);
    select_all("select");
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timespec pause = {0, 1000};
    result("pselect", pselect(fd + 1, &set, NULL, NULL, &pause, NULL));
    /* A low number: the kernel does not look at numbers that its table has no room for. */
    int closed = dup(fd);
    close(closed);
    FD_ZERO(&set);
    FD_SET(closed, &set);
    result("select of a closed descriptor",
           select(closed + 1, &set, NULL, NULL, &(struct timeval){0, 0}));
    result("select of a negative count", select(-1, NULL, NULL, NULL, NULL));
}
