/* pair: connect to AF_UNSPEC: what an open, an ended and a listening socket say afterwards, and their members in a set. */
#include "contract.h"

static int set;

static int dissolve(int fd) {
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    return result("dissolve", connect(fd, &nowhere, sizeof nowhere));
}

static void watch(int fd) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "EPOLL_CTL_ADD");
}

static void look(int fd) {
    struct epoll_event event = {0};
    say_poll("poll", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    result("epoll_wait", epoll_wait(set, &event, 1, 0));
    say("  %s", events(event.events));
}

static void an_open_one(int port) {
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    int fd = dial_port(port);
    char byte;
    watch(fd);
    dissolve(fd);
    look(fd);
    say("SO_ERROR %s", error_name(so_error(fd)));
    say("SO_ERROR %s", error_name(so_error(fd)));
    look(fd);
    result("recv", recv(fd, &byte, 1, 0));
    result("urgent", recv(fd, &byte, 1, MSG_OOB));
    struct epoll_event event = {.events = EPOLLIN};
    result("EPOLL_CTL_MOD", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
    result("connect again", connect(fd, (struct sockaddr *)&name, sizeof name));
    look(fd);
    dissolve(fd);
    /* What is not asked for is forgotten by the next connection. */
    result("connect again", connect(fd, (struct sockaddr *)&name, sizeof name));
    say("SO_ERROR %s", error_name(so_error(fd)));
    close(fd);
}

static void an_ended_one(int port) {
    int fd = dial_port(port);
    watch(fd);
    shutdown(fd, SHUT_WR);
    meet();
    wait_for(fd, POLLHUP);
    dissolve(fd);
    look(fd);
    say("SO_ERROR %s", error_name(so_error(fd)));
    close(fd);
}

static void a_reset_one(int port) {
    int fd = dial_port(port);
    watch(fd);
    wait_for(fd, POLLHUP);
    dissolve(fd);
    look(fd);
    say("SO_ERROR %s", error_name(so_error(fd)));
    say("SO_ERROR %s", error_name(so_error(fd)));
    close(fd);
}

static void server(void) {
    int listening = listener(4), fd;
    for (int i = 0; i < 3; i++) {
        fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        wait_for(fd, POLLRDHUP);
        close(fd);
    }
    fd = accept(listening, NULL, NULL);
    wait_for(fd, POLLRDHUP);
    shutdown(fd, SHUT_WR);
    meet();
    fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    struct linger at_once = {.l_onoff = 1};
    need(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0, "SO_LINGER");
    close(fd);
    set = epoll_create1(0);
    watch(listening);
    meet();
    wait_for(listening, POLLIN);
    dissolve(listening);
    look(listening);
    result("accept", accept4(listening, NULL, NULL, SOCK_NONBLOCK));
    meet();
    result("listen again", listen(listening, 4));
    tell(port_of(listening));
    fd = accept(listening, NULL, NULL);
    outcome("accept", fd);
    meet();
}

static void client(void) {
    int port = hear(), fd;
    char byte;
    set = epoll_create1(0);
    an_open_one(port);
    an_ended_one(port);
    a_reset_one(port);
    meet();
    fd = dial_port(port);
    meet();
    wait_for(fd, POLLHUP);
    result("its listener was dissolved", recv(fd, &byte, 1, 0));
    close(fd);
    /* The kernel has chosen another port. */
    dial_port(hear());
    meet();
}
