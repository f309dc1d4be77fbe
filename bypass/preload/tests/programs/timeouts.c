/* pair: SO_RCVTIMEO and SO_SNDTIMEO of reads, writes and accept. */
#include "contract.h"

static void set_timeout(int fd, int option, int ms) {
    struct timeval time = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    result("setsockopt", setsockopt(fd, SOL_SOCKET, option, &time, sizeof time));
}

static void server(void) {
    int listening = listener(4);
    set_timeout(listening, SO_RCVTIMEO, 50);
    double before = now_s();
    result("accept", accept(listening, NULL, NULL));
    say("waited %d", now_s() - before > 0.03);
    tell(0);
    int fd;
    do
        fd = accept(listening, NULL, NULL);
    while (fd == -1 && errno == EAGAIN);
    outcome("accept", fd);
    meet();
    meet();
}

static void client(void) {
    int port = hear();
    hear();
    int fd = dial_port(port);
    meet();
    char byte;
    set_timeout(fd, SO_RCVTIMEO, 50);
    double before = now_s();
    result("read", read(fd, &byte, 1));
    result("recv MSG_WAITALL", recv(fd, &byte, 1, MSG_WAITALL));
    say("waited %d", now_s() - before > 0.06);
    struct timeval time;
    socklen_t length = sizeof time;
    result("getsockopt", getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &length));
    say("%u bytes, %ld µs to %d", length, (long)time.tv_sec, time.tv_usec >= 50000);

    set_timeout(fd, SO_SNDTIMEO, 50);
    static char block[1 << 16];
    ssize_t put;
    while ((put = write(fd, block, sizeof block)) == sizeof block)
        ;
    if (put >= 0)
        put = write(fd, block, sizeof block);
    while (put > 0)
        put = write(fd, block, sizeof block);
    result("write to a full peer", put);
    say_poll("full", fd, POLLOUT, 0);
    struct timeval negative = {.tv_sec = 1, .tv_usec = 2000000};
    result("wrong timeout", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &negative, sizeof negative));
    result("short timeout", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &negative, 4));
    meet();
}
