/* pair: members of an epoll set are open files: they stay until the last number of theirs is closed, and
 * the number may mean another socket meanwhile. */
#include "contract.h"

static void look(const char *name, int set) {
    struct epoll_event found[8];
    int count = epoll_wait(set, found, 8, 0);
    unsigned sum = 0;
    for (int i = 0; i < count; i++)
        sum |= 1u << found[i].data.u32;
    say("%s: %d, members %#x", name, count, sum);
}

static int control(int set, int command, int fd, unsigned number) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = number};
    return epoll_ctl(set, command, fd, &event);
}

static void server(void) {
    int listening = listener(16), set = epoll_create1(0), fds[3];
    for (int i = 0; i < 3; i++)
        fds[i] = accept(listening, NULL, NULL);
    hear();
    for (int i = 0; i < 3; i++)
        wait_for(fds[i], POLLIN);
    result("add", control(set, EPOLL_CTL_ADD, fds[0], 1));
    int copy = dup(fds[0]);
    result("add the same by another number", control(set, EPOLL_CTL_ADD, copy, 2));
    look("both", set);
    int number = fds[0];
    close(number);
    look("the original is closed", set);
    result("delete by the closed number", control(set, EPOLL_CTL_DEL, number, 0));
    need(dup2(fds[1], number) == number, "dup2");
    result("its number means another socket", control(set, EPOLL_CTL_ADD, number, 3));
    look("three", set);
    result("modify it", control(set, EPOLL_CTL_MOD, number, 4));
    look("three, one renamed", set);
    result("delete it", control(set, EPOLL_CTL_DEL, number, 0));
    look("two", set);
    close(copy);
    look("none", set);
    result("add", control(set, EPOLL_CTL_ADD, fds[2], 5));
    need(dup2(listening, fds[2]) == fds[2], "dup2 over a member");
    look("it is gone", set);
    result("add what came instead", control(set, EPOLL_CTL_ADD, fds[2], 6));
    tell(0);
    wait_for(set, POLLIN);
    look("a client", set);
    outcome("accept by it", accept(fds[2], NULL, NULL));
    look("no client", set);
    meet();
}

static void client(void) {
    int port = hear(), fds[4];
    for (int i = 0; i < 3; i++) {
        fds[i] = dial_port(port);
        write_all(fds[i], "x", 1);
    }
    tell(0);
    hear();
    char byte;
    result("the third has ended", recv(fds[2], &byte, 1, 0) == 1 ? 1 : -1);
    fds[3] = dial_port(port);
    meet();
}
