/* pair: a client whose bytes fill the other host's window to the last one closes and ends: its end follows when the server
 * reads. */
#include "contract.h"

#define CHUNK 8000
#define MOST (1 << 20)

static char block[CHUNK];

/* tcpi_bytes_acked, which the C library's tcp_info does not have. */
static long acknowledged(int fd) {
    uint64_t words[16] = {0};
    socklen_t length = sizeof words;
    need(getsockopt(fd, IPPROTO_TCP, TCP_INFO, words, &length) == 0, "TCP_INFO");
    return words[15];
}

/* Writes so much at once only that all of it is sent; where it is not acknowledged soon, what was is the answer. */
static long fill_window(int fd, long most) {
    long total = 0;
    while (total < most) {
        long first = acknowledged(fd), wanted = most - total < CHUNK ? most - total : CHUNK;
        write_all(fd, block, wanted);
        /* Longer than a sender holds a small segment back. */
        for (int looks = 0; acknowledged(fd) - first < wanted; looks++) {
            if (looks == 500)
                return total + acknowledged(fd) - first;
            usleep(1000);
        }
        total += wanted;
    }
    return total;
}

static void client(void) {
    int port = hear();
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
