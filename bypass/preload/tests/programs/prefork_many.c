/* pair: hundreds of processes that each serve one connection at a time, of one client that keeps as many; some are
 * killed while they serve, and the others take what comes then. */
#include "contract.h"

#define CHILDREN 260
#define CONNECTIONS 200
#define KILLED 60
#define RIVALS 20

static void child_loop(int listening, int ready, int go) {
    char letter;
    need(accept(listening, NULL, NULL) == -1 && errno == EAGAIN, "no client has come yet");
    write_all(ready, "r", 1);
    need(read(go, &letter, 1) == 0, "go");
    for (;;) {
        int fd = accept(listening, NULL, NULL);
        if (fd < 0)
            _exit(1);
        while (read(fd, &letter, 1) == 1) {
            if (letter == 'K')
                kill(getpid(), SIGKILL);
            letter++;
            if (write(fd, &letter, 1) != 1)
                _exit(2);
        }
        close(fd);
    }
}

static void server(void) {
    int listening = listener_on("127.0.0.1", CONNECTIONS), ready[2], go[2], status, killed = 0;
    char byte;
    pid_t children[CHILDREN];
    need(pipe(ready) == 0 && pipe(go) == 0, "pipe");
    set_nonblocking(listening);
    for (int i = 0; i < CHILDREN; i++) {
        if ((children[i] = fork()) == 0) {
            close(go[1]);
            child_loop(listening, ready[1], go[0]);
        }
        need(children[i] > 0, "fork");
    }
    for (int i = 0; i < CHILDREN; i++)
        read_all(ready[0], &byte, 1);
    need(fcntl(listening, F_SETFL, fcntl(listening, F_GETFL) & ~O_NONBLOCK) == 0, "O_NONBLOCK");
    close(go[1]);
    tell(port_of(listening));
    hear();
    for (int i = 0; i < CHILDREN; i++) {
        kill(children[i], SIGKILL);
        need(waitpid(children[i], &status, 0) == children[i], "waitpid");
        killed += WIFSIGNALED(status);
    }
    say("killed %d", killed);
}

static int open_one(int port) {
    struct timeval wait = {.tv_sec = LONG_S};
    int fd = dial_strictly(port);
    need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0, "SO_RCVTIMEO");
    return fd;
}

static int is_answered(int fd, char letter) {
    char answer = 0;
    return write(fd, &letter, 1) == 1 && read(fd, &answer, 1) == 1 && answer == letter + 1;
}

static int count_answered(const int *fds, int from, int to) {
    int count = 0;
    for (int i = from; i < to; i++)
        count += is_answered(fds[i], 'a' + i % 10);
    return count;
}

static void client(void) {
    int port = hear(), fds[CONNECTIONS], ended = 0;
    for (int i = 0; i < CONNECTIONS; i++)
        fds[i] = open_one(port);
    say("right answers %d", count_answered(fds, 0, CONNECTIONS));

    for (int i = 0; i < KILLED; i++)
        write_all(fds[i], "K", 1);
    for (int i = 0; i < KILLED; i++) {
        char byte;
        ended += read(fds[i], &byte, 1) == 0;
        close(fds[i]);
    }
    say("over with their process %d", ended);
    say("right answers of the others %d", count_answered(fds, KILLED, CONNECTIONS));

    /* As many as there are processes left. */
    for (int i = 0; i < CHILDREN - CONNECTIONS; i++)
        fds[i] = open_one(port);
    say("right answers of new ones %d", count_answered(fds, 0, CHILDREN - CONNECTIONS));

    /* Two for each process that is free from now on: who has served one takes the next. */
    for (int i = 0; i < RIVALS; i++)
        close(fds[i]);
    int served = 0;
    for (int i = 0; i < 2 * RIVALS; i++) {
        int fd = open_one(port);
        served += is_answered(fd, 'p');
        close(fd);
    }
    say("served in turn %d", served);
    tell(0);
}
