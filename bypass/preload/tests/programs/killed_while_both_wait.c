/* pair: of two acceptors that wait one is killed, and a client that has not been notified of it connects: the other one is
 * woken, although a connection wakes one of them only (EPOLLEXCLUSIVE). */
#include "starving.h"

#define ROUNDS 4
#define BEFORE 6

static void acceptor(int listening, int ready) {
    go_anywhere();
    int set = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE};
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "epoll_ctl");
    write_all(ready, "r", 1);
    for (;;) {
        epoll_wait(set, &event, 1, -1);
        int fd = accept(listening, NULL, NULL);
        if (fd == -1)
            continue;
        write_all(fd, "k", 1);
        close(fd);
    }
}

static void round_of_server(int victim) {
    int listening = listener(16), ready[2];
    char byte;
    pid_t acceptors[2];
    set_nonblocking(listening);
    need(pipe(ready) == 0, "pipe");
    for (int i = 0; i < 2; i++) {
        acceptors[i] = fork();
        if (acceptors[i] == 0)
            acceptor(listening, ready[1]);
        read_all(ready[0], &byte, 1);
    }
    close(listening);
    tell(0);
    hear();
    kill(acceptors[victim], SIGKILL);
    waitpid(acceptors[victim], NULL, 0);
    tell(0);
    hear();
    kill(acceptors[1 - victim], SIGKILL);
    waitpid(acceptors[1 - victim], NULL, 0);
    close(ready[0]);
    close(ready[1]);
}

static void server(void) {
    for (int round = 0; round < ROUNDS; round++)
        round_of_server(round % 2);
}

static int is_served(int fd) {
    char letter = 0;
    struct pollfd one = {.fd = fd, .events = POLLIN};
    int got = poll(&one, 1, LONG_MS) == 1 && read(fd, &letter, 1) == 1 && letter == 'k';
    close(fd);
    return got;
}

static void client(void) {
    int served = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int port = hear();
        hear();
        /* Afterwards both have met this process, and wait again. */
        for (int i = 0; i < BEFORE; i++) {
            served += is_served(dial_port(port));
            usleep(20000);
        }
        schedule_others(SCHED_IDLE);
        tell(0);
        hear_spinning();
        int fd = dial_port(port);
        schedule_others(SCHED_OTHER);
        served += is_served(fd);
        tell(0);
    }
    say("served %d of %d", served, ROUNDS * (BEFORE + 1));
}
