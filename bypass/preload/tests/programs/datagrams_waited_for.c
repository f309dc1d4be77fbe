/* pair: waiting for datagrams: poll, select, epoll by level, by edge and once, timeouts, a thread that blocks. */
#include "datagrams.h"

static volatile pid_t waits;

static void *block(void *fd) {
    waits = gettid();
    say_next("in a thread", *(int *)fd, 0);
    return NULL;
}

static void say_set(const char *name, int set, int timeout_ms) {
    struct epoll_event found[4];
    int count = epoll_wait(set, found, 4, timeout_ms);
    if (count < 0)
        say("%s: -1 %s", name, strerrorname_np(errno));
    for (int i = 0; i < count; i++)
        say("%s: %s of %d", name, events(found[i].events), (int)found[i].data.u32);
    if (count == 0)
        say("%s: nothing", name);
}

static void server(void) {
    struct sockaddr_in client;
    int fd = served(&client);
    say_poll("nothing comes", fd, POLLIN, 1);
    say_poll("writable", fd, POLLIN | POLLOUT, LONG_MS);
    meet();
    say_poll("something comes", fd, POLLIN, LONG_MS);
    say_poll("both", fd, POLLIN | POLLOUT, LONG_MS);
    say_next("poll", fd, MSG_DONTWAIT);
    meet();
    fd_set readable;
    FD_ZERO(&readable);
    FD_SET(fd, &readable);
    struct timeval time = {LONG_S, 0};
    result("select", select(fd + 1, &readable, NULL, NULL, &time));
    say_next("select", fd, 0);
    struct timeval soon = {0, 1000};
    need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0, "SO_RCVTIMEO");
    say_next("in time", fd, 0);
    soon.tv_usec = 0;
    need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0, "SO_RCVTIMEO");
    pthread_t thread;
    need(pthread_create(&thread, NULL, block, &fd) == 0, "thread");
    until_it_waits(&waits);
    meet();
    pthread_join(thread, NULL);

    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1};
    result("add", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    result("add again", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    say_set("nothing yet", set, 1);
    meet();
    say_set("by level", set, LONG_MS);
    say_set("still", set, LONG_MS);
    say_next("level", fd, 0);
    say_set("taken", set, 0);
    event = (struct epoll_event){.events = EPOLLIN | EPOLLOUT, .data.u64 = 2};
    result("for both", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    say_set("room", set, LONG_MS);
    event = (struct epoll_event){.events = EPOLLIN | EPOLLET, .data.u64 = 3};
    result("by edge", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    say_set("no edge", set, 1);
    meet();
    say_set("an edge", set, LONG_MS);
    say_set("no other", set, 1);
    meet();
    say_set("another", set, LONG_MS);
    say_next("first", fd, 0);
    say_next("second", fd, 0);
    event = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 4};
    result("once", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    meet();
    say_set("once", set, LONG_MS);
    say_set("not again", set, 1);
    result("armed again", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    say_set("again", set, LONG_MS);
    say_next("once", fd, 0);
    result("armed again", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    int outer = epoll_create1(0);
    event = (struct epoll_event){.events = EPOLLIN, .data.u64 = 5};
    result("a set in a set", epoll_ctl(outer, EPOLL_CTL_ADD, set, &event));
    say_set("nothing in the outer", outer, 1);
    meet();
    say_set("outer", outer, LONG_MS);
    say_set("inner", set, LONG_MS);
    say_next("nested", fd, 0);
    event = (struct epoll_event){.events = EPOLLIN, .data.u64 = 6};
    result("by level", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    result("removed", epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
    result("removed again", epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL));
    meet();
    wait_for(fd, POLLIN);
    say_set("no member", set, 0);
    say_next("not waited for", fd, 0);
    result("add once more", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
    meet();
    say_set("once more", set, LONG_MS);
    /* With room for one event, a connection and a socket that stay readable are reported in turn. */
    int connection = serve_one();
    struct epoll_event found = {.events = EPOLLIN, .data.u32 = 7};
    result("a connection", epoll_ctl(set, EPOLL_CTL_ADD, connection, &found));
    wait_for(connection, POLLIN);
    int told[2] = {0};
    for (int i = 0; i < 16; i++)
        if (epoll_wait(set, &found, 1, LONG_MS) == 1)
            told[found.data.u32 == 7]++;
    say("reported both: %d %d", told[0] > 0, told[1] > 0);
    close(connection);
    close(fd);
    say_set("closed", set, 1);
    meet();
}

static void client(void) {
    struct sockaddr_in server;
    int fd = asking(&server);
    meet();
    send_text(fd, &server, "polled");
    meet();
    send_text(fd, &server, "selected");
    meet();
    send_text(fd, &server, "blocked");
    for (int i = 0; i < 7; i++) {
        meet();
        send_text(fd, &server, "waited for");
    }
    int connection = dial();
    write_all(connection, "x", 1);
    meet();
}
