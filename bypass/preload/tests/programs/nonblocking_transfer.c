/* pair: 16 MiB in both directions over edge-triggered, non-blocking sockets. */
#include "contract.h"

#define LENGTH (16u * 1024 * 1024)

static void both(int fd) {
    set_nonblocking(fd);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
    need(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0, "add");
    static unsigned char in[50000], out[60000];
    uint64_t sent = 0, got = 0, wrong = 0;
    int ended = 0;
    while (!ended || sent < LENGTH) {
        need(epoll_wait(epoll, &event, 1, LONG_MS) == 1, "epoll_wait");
        ssize_t count;
        while (!ended && (count = read(fd, in, sizeof in)) != -1) {
            ended = count == 0;
            for (ssize_t i = 0; i < count; i++)
                wrong += in[i] != stream_byte(got + i);
            got += count;
        }
        while (sent < LENGTH) {
            size_t size = LENGTH - sent < sizeof out ? LENGTH - sent : sizeof out;
            fill(out, size, sent);
            count = send(fd, out, size, MSG_NOSIGNAL);
            if (count == -1) {
                need(errno == EAGAIN, "send");
                break;
            }
            sent += count;
            if (sent == LENGTH)
                shutdown(fd, SHUT_WR);
        }
    }
    say("sent %lu got %lu wrong %lu", sent, got, wrong);
}

static void server(void) { both(serve_one()); }
static void client(void) { both(dial()); }
