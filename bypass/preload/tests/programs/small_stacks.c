/* pair: threads with the smallest stack that a program may ask for make every kind of call. */
#include <limits.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include "contract.h"

/* Stack that the program's own frames and libc need in addition. */
#define STACK (PTHREAD_STACK_MIN + 16384)

static int port, listening;

static void *serve(void *unused) {
    char bytes[64];
    struct epoll_event event = {.events = EPOLLIN};
    int set = epoll_create1(0), fd = accept(listening, NULL, NULL);
    need(fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "accept");
    need(epoll_wait(set, &event, 1, LONG_MS) == 1, "epoll_wait");
    ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    need(got > 0 && send(fd, bytes, got, 0) == got, "echo");
    int file = memfd_create("file", 0);
    need(write(file, "0123456789", 10) == 10, "write");
    off_t place = 0;
    need(sendfile(fd, file, &place, 10) == 10, "sendfile");
    close(file);
    close(fd);
    close(set);
    return unused;
}

static void *ask(void *unused) {
    char bytes[64];
    int fd = dial_port(port);
    struct iovec piece = {"hello", 5};
    need(writev(fd, &piece, 1) == 5, "writev");
    wait_for(fd, POLLIN);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    need(select(fd + 1, &set, NULL, NULL, NULL) == 1, "select");
    read_all(fd, bytes, 15);
    need(memcmp(bytes, "hello0123456789", 15) == 0, "bytes");
    int copy = dup(fd);
    need(shutdown(copy, SHUT_RDWR) == 0, "shutdown");
    close(copy);
    close(fd);
    return unused;
}

static void in_a_thread(void *(*work)(void *)) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    need(pthread_attr_setstacksize(&attributes, STACK) == 0, "stack size");
    need(pthread_create(&thread, &attributes, work, NULL) == 0, "pthread_create");
    pthread_join(thread, NULL);
}

static void server(void) {
    listening = listener(16);
    for (int i = 0; i < 5; i++)
        in_a_thread(serve);
    say("served 5");
}

static void client(void) {
    port = hear();
    for (int i = 0; i < 5; i++)
        in_a_thread(ask);
    say("asked 5");
}
