/* pair: a client whose bytes fill the other host's window to the last one closes and ends: its end follows when the server
 * reads. */
#include "contract.h"
#include <stddef.h>

#define CHUNK 8000
#define MOST (1 << 20)

static char block[CHUNK];

/* Fields of TCP_INFO that the C library's tcp_info does not have. */
struct progress {
    uint64_t before[15], acknowledged, between[2];
    uint32_t unsent, behind[20], window;
};
_Static_assert(offsetof(struct progress, unsent) == 144, "tcpi_notsent_bytes");
_Static_assert(offsetof(struct progress, window) == 228, "tcpi_snd_wnd");

static struct progress progress(int fd) {
    struct progress now = {0};
    socklen_t length = sizeof now;
    need(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &now, &length) == 0, "TCP_INFO");
    return now;
}

/* Writes so much at once only that all of it is sent, until the window is shut before bytes that wait; how many were
 * acknowledged. Shared memory has no window. */
static long fill_window(int fd, long most) {
    long total = 0;
    int has_window = progress(fd).window > 0;
    while (total < most) {
        long wanted = most - total < CHUNK ? most - total : CHUNK;
        struct progress first = progress(fd), now = first;
        write_all(fd, block, wanted);
        if (!has_window)
            return wanted;
        while ((long)(now.acknowledged - first.acknowledged) < wanted) {
            if (now.window == 0 && now.unsent > 0)
                return total + now.acknowledged - first.acknowledged;
            usleep(1000);
            now = progress(fd);
        }
        total += wanted;
    }
    return total;
}

static void client(void) {
    int port = hear();
    alarm(LONG_S);
    int first = dial_port(port);
    long room = fill_window(first, MOST);
    int second = dial_port(port);
    fill_window(second, room);
    tell(0);
    hear();
}

static void read_to_end(const char *what, int fd) {
    char byte[CHUNK];
    ssize_t got;
    wait_for(fd, POLLIN);
    while ((got = read(fd, byte, sizeof byte)) > 0)
        wait_for(fd, POLLIN);
    result(what, got);
}

static void server(void) {
    int listening = listener_on("127.0.0.1", 16);
    set_int(listening, SOL_SOCKET, SO_RCVBUF, 8192);
    tell(port_of(listening));
    int first = accept(listening, NULL, NULL), second = accept(listening, NULL, NULL);
    need(first >= 0 && second >= 0, "accept");
    hear();
    tell(0);
    read_to_end("the first", first);
    /* By then a client has gone that does not wait until its end has left. */
    struct pollfd other = {.fd = CHANNEL, .events = POLLIN};
    poll(&other, 1, 500);
    read_to_end("the second", second);
}
