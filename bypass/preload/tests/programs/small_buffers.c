/* solo: SO_SNDBUF and SO_RCVBUF set small: how much is taken before anybody reads, in steps of four. */
#define SOLO
#include "contract.h"

#define MIB (1 << 20)

static long fill_up(int fd) {
    static char block[30000];
    long total = 0;
    ssize_t put;
    for (int looks = 0; looks < 5; looks++, usleep(10000))
        while ((put = send(fd, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
            total += put;
    need(errno == EAGAIN, "send");
    return total;
}

static void try(const char *name, int send_bytes, int receive_bytes) {
    int listening = listener_on("127.0.0.1", 16);
    if (receive_bytes)
        setsockopt(listening, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    int near = socket(AF_INET, SOCK_STREAM, 0);
    if (send_bytes)
        setsockopt(near, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    struct sockaddr_in to = ipv4("127.0.0.1", port_of(listening));
    need(connect(near, (struct sockaddr *)&to, sizeof to) == 0, "connect");
    int far = accept(listening, NULL, NULL);
    need(far >= 0, "accept");
    long total = fill_up(near);
    say("%s: at least 16 KiB %d, 1 MiB %d; less than 256 KiB %d, 8 MiB %d", name, total >= 16384,
        total >= MIB, total < MIB / 4, total < 8 * MIB);
    close(near);
    close(far);
    close(listening);
}

static void solo(void) {
    try("as they are", 0, 0);
    try("a small send buffer", 4096, 0);
    try("both small", 16384, 16384);
    try("a large send buffer", 1 << 20, 0);
}
