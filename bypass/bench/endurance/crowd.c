/* Two roles for the runs at scale: a server of many threads on one epoll set, and a client of many connections
 * that compares every response and records the longest wait.
 *
 *   crowd threads PORT COUNT BODY               until SIGTERM; BODY is a file, sent in every response
 *   crowd client PORT CONNECTIONS SECONDS BODY  prints responses, wrong ones, failures, the longest wait in ms and
 *                                               the fewest responses of a connection; a request is sent again as
 *                                               soon as its response has arrived
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define HEAD_MAX 4096
static const char REQUEST[] = "GET /body HTTP/1.1\r\nHost: localhost\r\n\r\n";
static char body[1 << 20];
static size_t body_length;

static void read_body(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd == -1 ? -1 : read(fd, body, sizeof body);
    if (got < 0) {
        perror(path);
        exit(2);
    }
    body_length = got;
    close(fd);
}

static double now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

static struct sockaddr_in name_of(int port) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return name;
}

/* ---- server ---- */

static int set, listening;
static char answer[sizeof body + HEAD_MAX];
static size_t answer_length;

static void arm(int operation, int fd) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};
    epoll_ctl(set, operation, fd, &event);
}

static void take_connection(void) {
    int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
    arm(EPOLL_CTL_MOD, listening);
    if (fd != -1)
        arm(EPOLL_CTL_ADD, fd);
}

/* The client sends its whole request at once and waits: one read has it. */
static void answer_request(int fd) {
    char request[HEAD_MAX];
    if (read(fd, request, sizeof request) <= 0) {
        close(fd);
        return;
    }
    for (size_t done = 0; done < answer_length;) {
        ssize_t put = send(fd, answer + done, answer_length - done, MSG_NOSIGNAL);
        if (put <= 0) {
            close(fd);
            return;
        }
        done += put;
    }
    arm(EPOLL_CTL_MOD, fd);
}

static void *work(void *unused) {
    struct epoll_event ready[4];
    for (;;) {
        int count = epoll_wait(set, ready, 4, -1);
        for (int each = 0; each < count; each++)
            ready[each].data.fd == listening ? take_connection() : answer_request(ready[each].data.fd);
    }
    return unused;
}

static int serve(int port, int threads) {
    int on = 1;
    struct sockaddr_in name = name_of(port);
    answer_length = sprintf(answer, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", body_length);
    memcpy(answer + answer_length, body, body_length);
    answer_length += body_length;
    listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listening, (struct sockaddr *)&name, sizeof name) == -1 || listen(listening, 4096) == -1) {
        perror("crowd: listen");
        return 1;
    }
    set = epoll_create1(EPOLL_CLOEXEC);
    arm(EPOLL_CTL_ADD, listening);
    for (int each = 1; each < threads; each++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, NULL);
    }
    work(NULL);
    return 0;
}

/* ---- client ---- */

struct connection {
    int fd;
    long answers;
    double asked;
    size_t head_length, body_done;
    char head[HEAD_MAX];
};
static long answers, wrong, failed;
static double longest;

static void ask(struct connection *of) {
    of->asked = now_ms();
    of->head_length = of->body_done = 0;
    failed += send(of->fd, REQUEST, sizeof REQUEST - 1, MSG_NOSIGNAL) != sizeof REQUEST - 1;
}

static void note_wait(struct connection *of) {
    double waited = now_ms() - of->asked;
    longest = waited > longest ? waited : longest;
}

static void compare(struct connection *of, const char *bytes, size_t length) {
    if (of->body_done + length > body_length || memcmp(body + of->body_done, bytes, length)) {
        wrong++;
        of->body_done = body_length;
    } else {
        of->body_done += length;
    }
    if (of->body_done < body_length)
        return;
    note_wait(of);
    of->answers++;
    answers++;
    ask(of);
}

/* Collects the head up to its empty line, then compares. */
static void take(struct connection *of, const char *bytes, size_t length) {
    if (of->body_done || (of->head_length >= 4 && !memcmp(of->head + of->head_length - 4, "\r\n\r\n", 4))) {
        compare(of, bytes, length);
        return;
    }
    for (size_t at = 0; at < length && of->head_length < HEAD_MAX; at++) {
        of->head[of->head_length++] = bytes[at];
        if (of->head_length >= 4 && !memcmp(of->head + of->head_length - 4, "\r\n\r\n", 4)) {
            wrong += strncmp(of->head, "HTTP/1.1 200", 12) != 0;
            if (at + 1 < length)
                compare(of, bytes + at + 1, length - at - 1);
            return;
        }
    }
}

static int crowd(int port, int count, double seconds) {
    static char block[1 << 18];
    struct connection *all = calloc(count, sizeof *all);
    struct sockaddr_in name = name_of(port);
    int own = epoll_create1(EPOLL_CLOEXEC);
    for (int each = 0; each < count; each++) {
        all[each].fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(all[each].fd, (struct sockaddr *)&name, sizeof name) == -1) {
            perror("crowd: connect");
            return 1;
        }
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[each]};
        epoll_ctl(own, EPOLL_CTL_ADD, all[each].fd, &event);
        ask(&all[each]);
    }
    for (double ends = now_ms() + seconds * 1e3; now_ms() < ends;) {
        struct epoll_event ready[64];
        int found = epoll_wait(own, ready, 64, 100);
        for (int each = 0; each < found; each++) {
            struct connection *of = ready[each].data.ptr;
            ssize_t got = read(of->fd, block, sizeof block);
            if (got > 0) {
                take(of, block, got);
            } else if (epoll_ctl(own, EPOLL_CTL_DEL, of->fd, NULL) == 0) {
                failed++;
            }
        }
    }
    long fewest = all[0].answers;
    for (int each = 0; each < count; each++) {
        note_wait(&all[each]);
        fewest = all[each].answers < fewest ? all[each].answers : fewest;
    }
    printf("%ld %ld %ld %.1f %ld\n", answers, wrong, failed, longest, fewest);
    return 0;
}

int main(int count, char **words) {
    if (count == 5 && !strcmp(words[1], "threads")) {
        read_body(words[4]);
        return serve(atoi(words[2]), atoi(words[3]));
    }
    if (count == 6 && !strcmp(words[1], "client")) {
        read_body(words[5]);
        return crowd(atoi(words[2]), atoi(words[3]), atof(words[4]));
    }
    fprintf(stderr, "crowd: see the head of crowd.c\n");
    return 2;
}
