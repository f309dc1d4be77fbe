/* pair: listeners that stop, listen again, dissolve or make room for another descriptor while clients wait. */
#include <sys/mman.h>
#include "contract.h"

static void say_ends(const char *name, int fd) {
    char byte;
    wait_for(fd, POLLIN);
    result(name, recv(fd, &byte, 1, 0));
}

static void server(void) {
    int listening = listener(16), file = memfd_create("file", 0), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "add");
    meet();
    wait_for(listening, POLLIN);
    result("shutdown", shutdown(listening, SHUT_RD));
    result("its end in a set", epoll_wait(set, &event, 1, LONG_MS));
    say("%s", events(event.events));
    close(set);
    result("accept", accept4(listening, NULL, NULL, SOCK_NONBLOCK));
    meet();
    result("listen again", listen(listening, 4));
    tell(port_of(listening));
    int fd = accept(listening, NULL, NULL);
    outcome("accept", fd);
    write_all(fd, "x", 1);
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    result("dissolve", connect(listening, &none, sizeof none));
    meet();
    result("accept of one that does not listen", accept(listening, NULL, NULL));
    close(listening);
    listening = listener(4);
    meet();
    wait_for(listening, POLLIN);
    need(dup2(file, listening) == listening, "dup2 over a listener");
    result("write to what is there now", write(listening, "file", 4));
    meet();
    close(listening);
    listening = listener(4);
    int copy = dup(listening);
    meet();
    need(dup2(file, listening) == listening, "dup2 over one of two");
    fd = accept(copy, NULL, NULL);
    outcome("accept by the other", fd);
    write_all(fd, "y", 1);
    result("listen twice", listen(copy, 8));
    meet();
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    meet();
    meet();
    say_ends("waited at the shutdown", fd);
    port = hear();
    fd = dial_port(port);
    say_ends("accepted after listen", fd);
    meet();
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    result("dissolved", connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&name, sizeof name));
    fd = dial();
    meet();
    meet();
    say_ends("its listener was replaced", fd);
    fd = dial();
    meet();
    say_ends("one number of two was replaced", fd);
    meet();
}
