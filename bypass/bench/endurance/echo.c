/* Two roles for the endurance runs: an echo server, and a client that checks every byte.
 *
 *   echo server PORT            until SIGTERM
 *   echo client PORT SEED       reconnects after every error; exit 3 at the first wrong byte; at SIGUSR1
 *                               ends as soon as its message has come back
 *   echo hold PORT COUNT        opens COUNT connections, uses each once, and waits for its input to end
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 65536
#define MESSAGES_OF_CONNECTION 200

static volatile sig_atomic_t stopped;
static void stop(int number) {
    (void)number;
    stopped = 1;
}

/* The client ends after the response it waits for; a blocked call goes on. */
static volatile sig_atomic_t finishing;
static void finish(int number) {
    (void)number;
    finishing = 1;
}

static struct sockaddr_in name_of(int port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return name;
}

static void add(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == -1)
        close(fd);
}

/* Blocking writes: the client reads what it has sent before it sends more. */
static void send_back(int fd) {
    static char block[BLOCK];
    ssize_t got = read(fd, block, sizeof block);
    if (got <= 0) {
        close(fd);
        return;
    }
    for (ssize_t done = 0; done < got;) {
        ssize_t put = send(fd, block + done, got - done, MSG_NOSIGNAL);
        if (put <= 0) {
            close(fd);
            return;
        }
        done += put;
    }
}

static int serve(int port) {
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    struct sockaddr_in name = name_of(port);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listening, (struct sockaddr *)&name, sizeof name) == -1 || listen(listening, 4096) == -1) {
        perror("echo: listen");
        return 1;
    }
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    add(epoll, listening);
    while (!stopped) {
        struct epoll_event ready[64];
        int count = epoll_wait(epoll, ready, 64, 1000);
        for (int i = 0; i < count; i++) {
            if (ready[i].data.fd == listening) {
                int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
                if (fd >= 0)
                    add(epoll, fd);
            } else {
                send_back(ready[i].data.fd);
            }
        }
    }
    return 0;
}

static int dial(int port) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in name = name_of(port);
    if (connect(fd, (struct sockaddr *)&name, sizeof name) == -1) {
        close(fd);
        return -1;
    }
    return fd;
}

static uint32_t next(uint32_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

/* 1: complete and right, 0: the connection ended, -1: a wrong byte. */
static int exchange(int fd, uint32_t *state) {
    static unsigned char sent[BLOCK], got[BLOCK];
    size_t length = 1 + next(state) % (next(state) % 8 ? 2000 : BLOCK / 4);
    for (size_t i = 0; i < length; i++)
        sent[i] = (unsigned char)(next(state) >> 7);
    for (size_t done = 0; done < length;) {
        ssize_t put = send(fd, sent + done, length - done, MSG_NOSIGNAL);
        if (put <= 0)
            return 0;
        done += put;
    }
    for (size_t done = 0; done < length;) {
        ssize_t count = read(fd, got + done, length - done);
        if (count <= 0)
            return 0;
        if (memcmp(got + done, sent + done, count) != 0)
            return -1;
        done += count;
    }
    return 1;
}

static int check(int port, uint32_t state) {
    unsigned long messages = 0, connections = 0, ends = 0;
    while (!stopped && !finishing) {
        int fd = dial(port);
        if (fd == -1) {
            usleep(2000);
            continue;
        }
        connections++;
        for (int i = 0; i < MESSAGES_OF_CONNECTION && !stopped && !finishing; i++) {
            int result = exchange(fd, &state);
            if (result == -1) {
                fprintf(stderr, "echo: a wrong byte\n");
                return 3;
            }
            if (result == 0) {
                ends++;
                break;
            }
            messages++;
        }
        close(fd);
    }
    printf("messages %lu connections %lu ends %lu\n", messages, connections, ends);
    return 0;
}

static int hold(int port, int count) {
    uint32_t state = 12345;
    int right = 0;
    int *fds = calloc(count, sizeof *fds);
    for (int i = 0; i < count; i++) {
        fds[i] = dial(port);
        if (fds[i] == -1) {
            perror("echo: connect");
            return 1;
        }
    }
    for (int i = 0; i < count; i++)
        right += exchange(fds[i], &state) == 1;
    printf("right %d\n", right);
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    return right == count ? 0 : 1;
}

int main(int count, char **words) {
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGTERM, &action, NULL);
    struct sigaction gentle = {.sa_handler = finish, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &gentle, NULL);
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (count >= 3 && strcmp(words[1], "server") == 0)
        return serve(atoi(words[2]));
    if (count >= 4 && strcmp(words[1], "client") == 0)
        return check(atoi(words[2]), 1 + strtoul(words[3], NULL, 10));
    if (count >= 4 && strcmp(words[1], "hold") == 0)
        return hold(atoi(words[2]), atoi(words[3]));
    return 2;
}
