/* pair: bytes that come while a connection is in no set (not accepted yet, or taken out) notify no set; the next
 * ones do, however many came so. */
#include "contract.h"

/* Around the turn of a counter of one byte. */
enum { FEWEST = 253, MOST = 257 };

static int set;

static void add(int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "add");
    need(epoll_wait(set, &event, 1, 0) == 0, "nothing yet");
}

/* Whether the byte that the client is asked for is reported. */
static int is_told(int fd) {
    struct epoll_event event;
    char byte;
    tell(1);
    int count = epoll_wait(set, &event, 1, LONG_MS);
    read_all(fd, &byte, 1);
    return count == 1;
}

/* A connection that leaves the set and comes back. */
static void leave_and_return(int fd) {
    char bytes[MOST];
    int told = 0;
    for (int count = FEWEST; count <= MOST; count++) {
        add(fd);
        told += is_told(fd);
        need(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0, "delete");
        tell(count);
        hear();
        read_all(fd, bytes, count);
        add(fd);
        told += is_told(fd);
        need(epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL) == 0, "delete");
    }
    say("reported %d of %d", told, 2 * (MOST - FEWEST + 1));
}

/* Connections whose only byte comes before they are accepted, between two where it comes afterwards. */
static void accept_late(int listening) {
    int told = 0;
    char byte;
    for (int count = FEWEST; count <= MOST; count++)
        for (int number = 0; number <= count + 1; number++) {
            int is_early = number != 0 && number != count + 1;
            tell(is_early);
            hear();
            int fd = accept(listening, NULL, NULL);
            need(fd >= 0, "accept");
            if (is_early) {
                read_all(fd, &byte, 1);
            } else {
                add(fd);
                told += is_told(fd);
            }
            /* First here, so that the client's next connection may take its place. */
            close(fd);
            tell(0);
        }
    say("reported %d of %d", told, 2 * (MOST - FEWEST + 1));
}

static void server(void) {
    int listening = listener(16);
    set = epoll_create1(0);
    int fd = accept(listening, NULL, NULL);
    leave_and_return(fd);
    tell(0);
    close(fd);
    tell(0);
    accept_late(listening);
    tell(-1);
}

static void client(void) {
    int port = hear(), fd = dial_port(port), count;
    while ((count = hear()) > 0) {
        for (int i = 0; i < count; i++)
            write_all(fd, "m", 1);
        if (count > 1)
            tell(0);
    }
    hear();
    close(fd);
    for (int is_early; (is_early = hear()) >= 0;) {
        fd = dial_port(port);
        if (is_early)
            write_all(fd, "e", 1);
        tell(0);
        if (!is_early) {
            hear();
            write_all(fd, "l", 1);
        }
        hear();
        close(fd);
    }
}
