/* pair: large writes to a peer that has closed: what the first takes, and what the next says. */
#include "contract.h"
#include <sys/mman.h>
#include <sys/sendfile.h>

#define MIB (1 << 20)
#define SMALL 1000
static char block[8 * MIB];

static void server(void) {
    int listening = listener(16);
    for (int i = 0; i < 7; i++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        if (i == 4)
            hear();
        close(fd);
        meet();
        hear();
    }
}

static void first_and_next(int fd, size_t length, int flags) {
    say("first %zd", send(fd, block, length, flags | MSG_NOSIGNAL));
    /* The reset that answers it, which a busy kernel sends later. */
    wait_for(fd, 0);
    struct sockaddr_in peer;
    socklen_t room = sizeof peer;
    result("getpeername", getpeername(fd, (struct sockaddr *)&peer, &room));
    if (length == SMALL) {
        say_poll("poll", fd, 0, 0);
        say("SO_ERROR %s", error_name(so_error(fd)));
        say_poll("poll", fd, 0, 0);
    }
    result("next", send(fd, block, 10, flags | MSG_NOSIGNAL));
    result("once more", send(fd, block, 10, flags | MSG_NOSIGNAL));
    close(fd);
    tell(0);
}

/* With a small SO_SNDBUF the first write takes no more than what such a buffer holds. */
static void small_buffer(int fd, int file) {
    int bytes = 4096;
    need(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes) == 0, "SO_SNDBUF");
    off_t from = 0;
    ssize_t first = file < 0 ? send(fd, block, MIB, MSG_NOSIGNAL | MSG_DONTWAIT)
                             : sendfile(fd, file, &from, MIB);
    say("%s took %s", file < 0 ? "send" : "sendfile",
        first <= 65536 ? "a little at most" : "too much");
    close(fd);
    tell(0);
}

static void client(void) {
    int port = hear();
    const struct {
        size_t length;
        int flags;
    } tries[] = {{SMALL, 0}, {100000, 0}, {8 * MIB, 0}, {8 * MIB, MSG_DONTWAIT}};
    for (int i = 0; i < 4; i++) {
        int fd = dial_port(port);
        meet();
        wait_for(fd, POLLIN);
        first_and_next(fd, tries[i].length, tries[i].flags);
    }
    /* One that has not read what was there answers with a reset. */
    int fd = dial_port(port);
    need(send(fd, block, MIB, MSG_NOSIGNAL) == MIB, "send");
    tell(0);
    meet();
    wait_for(fd, POLLERR);
    first_and_next(fd, 2 * SMALL, 0);
    signal(SIGPIPE, SIG_IGN);
    int file = memfd_create("content", 0);
    need(file >= 0 && write(file, block, MIB) == MIB, "write");
    for (int i = 0; i < 2; i++) {
        int other = dial_port(port);
        meet();
        wait_for(other, POLLIN);
        need(fcntl(other, F_SETFL, O_NONBLOCK) == 0, "F_SETFL");
        small_buffer(other, i == 0 ? -1 : file);
    }
}
