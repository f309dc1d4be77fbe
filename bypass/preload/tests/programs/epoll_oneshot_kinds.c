/* pair: EPOLLONESHOT on a listener where clients of two kinds wait, one of which asks for what only the
 * kernel's TCP has: one report for both, in whichever order they came. */
#include "contract.h"

#define QUIET_MS 20

static int listening, set;

static void look(const char *name, int timeout_ms) {
    struct epoll_event event = {0};
    int count = epoll_wait(set, &event, 1, timeout_ms);
    say("%s: %d, data %s", name, count, count != 1 || event.data.u64 == 77 ? "right" : "wrong");
}

static void arm(void) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 77};
    need(epoll_ctl(set, EPOLL_CTL_MOD, listening, &event) == 0, "EPOLL_CTL_MOD");
}

static void round_of_two(void) {
    arm();
    meet();
    look("the first report", LONG_MS);
    for (int i = 0; i < 3; i++)
        look("disarmed", QUIET_MS);
    arm();
    look("armed again", LONG_MS);
    look("disarmed", QUIET_MS);
    for (int i = 0; i < 2; i++)
        need(accept(listening, NULL, NULL) >= 0, "accept");
    arm();
    look("no client left", QUIET_MS);
    meet();
}

static void server(void) {
    struct epoll_event event = {.events = EPOLLIN};
    listening = listener(16);
    set = epoll_create1(0);
    set_nonblocking(listening);
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "EPOLL_CTL_ADD");
    round_of_two();
    round_of_two();
}

static void dial_by_kernel(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    set_int(fd, SOL_SOCKET, SO_TIMESTAMP, 1);
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
}

static void client(void) {
    int port = hear();
    dial_by_kernel(port);
    dial_port(port);
    meet();
    meet();
    dial_port(port);
    dial_by_kernel(port);
    meet();
    meet();
}
