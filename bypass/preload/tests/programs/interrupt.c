/* pair: signals during blocking calls: EINTR without SA_RESTART, and going on with it. */
#include "contract.h"

static volatile sig_atomic_t handled;
static int fd_written_by_handler = -1;

static void handler(int number) {
    (void)number;
    handled++;
    if (fd_written_by_handler >= 0) {
        int value = 0;
        if (write(fd_written_by_handler, &value, sizeof value) < 0)
            handled += 100;
        fd_written_by_handler = -1;
    }
}

static void on_alarm(int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(SIGALRM, &action, NULL);
}

/* Repeats, so that a signal that comes before the call blocks is followed by one during it. */
static void alarms(int interval_ms) {
    struct itimerval timer = {.it_value.tv_usec = interval_ms * 1000,
                              .it_interval.tv_usec = interval_ms * 1000};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void server(void) {
    int listening = listener(4);
    on_alarm(0);
    alarms(40);
    result("accept", accept(listening, NULL, NULL));
    alarms(0);
    tell(0);
    int fd = accept(listening, NULL, NULL);
    outcome("accept", fd);
    hear();
    write_all(fd, "after", 5);
    meet();
}

static void client(void) {
    char buffer[8];
    int port = hear();
    hear();
    int fd = dial_port(port);
    on_alarm(0);
    alarms(40);
    result("read", read(fd, buffer, 5));
    result("recv", recv(fd, buffer, 5, 0));
    struct pollfd one = {.fd = fd, .events = POLLIN};
    result("poll", poll(&one, 1, LONG_MS));
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    struct timeval time = {.tv_sec = LONG_S};
    result("select", select(fd + 1, &set, NULL, NULL, &time));
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
    result("epoll_wait", epoll_wait(epoll, &event, 1, LONG_MS));
    alarms(0);
    on_alarm(SA_RESTART);
    alarms(40);
    result("epoll_wait with SA_RESTART", epoll_wait(epoll, &event, 1, LONG_MS));
    result("poll with SA_RESTART", poll(&one, 1, LONG_MS));
    handled = 0;
    fd_written_by_handler = CHANNEL;
    result("read with SA_RESTART", read(fd, buffer, 5));
    alarms(0);
    say("handler ran %d", handled > 0 && handled < 100);
    meet();
}
