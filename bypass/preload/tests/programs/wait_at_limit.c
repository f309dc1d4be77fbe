/* pair: poll, select, epoll and blocked calls wait as ever when no descriptor is left. */
#include "contract.h"

static int full[64], count;

static void server(void) {
    int listening = listener(4), first = accept(listening, NULL, NULL);
    int second = accept(listening, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        hear();
        usleep(20000);
        write_all(i == 1 ? second : first, "x", 1);
    }
    hear();
    close(first);
    hear();
}

static void client(void) {
    int port = hear(), first = dial_port(port), second = dial_port(port);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    struct rlimit limit = {64, 64};
    char byte;
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    while (count < 64 && (full[count] = open("/dev/null", O_RDONLY)) >= 0)
        count++;
    result("full", dup(1));
    say_poll("nothing there", first, POLLIN, 20);
    tell(0);
    say_poll("bytes come", first, POLLIN, LONG_MS);
    result("read", read(first, &byte, 1));
    tell(0);
    result("a blocked read", read(second, &byte, 1));
    result("add", epoll_ctl(epoll, EPOLL_CTL_ADD, first, &event));
    result("nothing there", epoll_wait(epoll, &event, 1, 20));
    tell(0);
    result("bytes come", epoll_wait(epoll, &event, 1, LONG_MS));
    say("%s", events(event.events));
    result("read", read(first, &byte, 1));
    tell(0);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(first, &set);
    result("the end comes", select(first + 1, &set, NULL, NULL, &(struct timeval){LONG_S, 0}));
    result("read", read(first, &byte, 1));
    tell(0);
}
