/* pair: a server writes a header, thinks without any call until the client has it, then sends a file. */
#include <sys/mman.h>
#include <sys/sendfile.h>
#include "contract.h"

#define HEADER "header 10\n"
#define HEADER_BYTES 10
#define BODY_BYTES 1000
#define ROUNDS 8
#define PAUSE_US 8000

/* How the client waits for the header. */
static const char *const ways[] = {"epoll_wait", "epoll_wait without waiting", "poll", "read",
                                   "epoll_wait next to a busy connection"};
#define WAYS (int)(sizeof ways / sizeof *ways)

/* Round by round 1 when the client has the header: in memory of both, so that the server, while it
 * looks there, makes no call. */
static volatile int *arrived;

static void share(int memory) {
    need(memory >= 0, "memory");
    need(ftruncate(memory, 4096) == 0, "ftruncate");
    arrived = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    need(arrived != MAP_FAILED, "mmap");
}

static int make_file(void) {
    char name[] = "/tmp/contract-XXXXXX", body[BODY_BYTES];
    int file = mkstemp(name);
    need(file >= 0, "mkstemp");
    unlink(name);
    memset(body, 'b', sizeof body);
    write_all(file, body, sizeof body);
    return file;
}

static void answer(int fd, int file, int number) {
    char request;
    off_t offset = 0;
    read_all(fd, &request, 1);
    /* In every other round the client is asleep when the header comes. */
    if (number % 2)
        usleep(PAUSE_US);
    write_all(fd, HEADER, HEADER_BYTES);
    /* The first answers show what kind of server this is. */
    while (number >= 2 && !arrived[number])
        ;
    need(sendfile(fd, file, &offset, BODY_BYTES) == BODY_BYTES, "sendfile");
}

static void server(void) {
    int listening = listener(16), memory = memfd_create("arrived", 0);
    share(memory);
    hand(CHANNEL, &memory, 1);
    int fd = accept(listening, NULL, NULL), busy = accept(listening, NULL, NULL);
    need(fd >= 0 && busy >= 0, "accept");
    write_all(busy, "x", 1);
    int file = make_file();
    for (int number = 0; number < WAYS * ROUNDS; number++)
        answer(fd, file, number);
    /* A header behind which nothing comes. */
    write_all(fd, HEADER, HEADER_BYTES);
    while (!arrived[WAYS * ROUNDS])
        ;
    close(fd);
    meet();
}

static void wait_in(int set, int fd, int timeout_ms) {
    struct epoll_event event;
    do
        event.data.fd = epoll_wait(set, &event, 1, timeout_ms) == 1 ? event.data.fd : -1;
    while (event.data.fd != fd);
}

static void wait_for_header(int way, int fd, const int *sets) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    switch (way) {
    case 0: wait_in(sets[0], fd, -1); break;
    case 1: wait_in(sets[0], fd, 0); break;
    case 2: need(poll(&one, 1, -1) == 1, "poll"); break;
    case 3: break;
    default: wait_in(sets[1], fd, -1);
    }
}

static void expect(int fd, size_t length, const char *what) {
    char bytes[BODY_BYTES];
    read_all(fd, bytes, length);
    size_t right = 0;
    for (size_t at = 0; at < length; at++)
        right += bytes[at] == (length == HEADER_BYTES ? HEADER[at] : 'b');
    need(right == length, what);
}

static void client(void) {
    int port = hear(), memory, sets[2];
    take(CHANNEL, &memory, 1);
    share(memory);
    int fd = dial_port(port), busy = dial_port(port);
    for (int at = 0; at < 2; at++) {
        struct epoll_event event = {.events = EPOLLIN, .data.fd = fd}, other = event;
        other.data.fd = busy;
        sets[at] = epoll_create1(0);
        need(epoll_ctl(sets[at], EPOLL_CTL_ADD, fd, &event) == 0, "add");
        need(at == 0 || epoll_ctl(sets[at], EPOLL_CTL_ADD, busy, &other) == 0, "add");
    }
    for (int number = 0; number < WAYS * ROUNDS; number++) {
        int way = number / ROUNDS;
        write_all(fd, "r", 1);
        /* In some rounds the header is there before the client looks, and sleeps. */
        if (number % 4 == 2)
            usleep(PAUSE_US);
        wait_for_header(way, fd, sets);
        expect(fd, HEADER_BYTES, "header");
        arrived[number] = 1;
        expect(fd, BODY_BYTES, "body");
        if (number % ROUNDS == ROUNDS - 1)
            say("%s: %d answers", ways[way], ROUNDS);
    }
    wait_for_header(0, fd, sets);
    expect(fd, HEADER_BYTES, "header");
    arrived[WAYS * ROUNDS] = 1;
    result("after the end", read(fd, &port, 1));
    meet();
}
