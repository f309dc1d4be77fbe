/* solo: pthread_cancel ends a thread in every call that waits, and nothing else of the connection. */
#define SOLO
#include "contract.h"

static int fd, other, listening, set;
static volatile pid_t announced;
static char bytes[1 << 16];

static void call_read(void) { read(fd, bytes, 1); }
static void call_readv(void) { readv(fd, &(struct iovec){bytes, 1}, 1); }
static void call_recv(void) { recv(fd, bytes, sizeof bytes, MSG_WAITALL); }
static void call_recvfrom(void) { recvfrom(fd, bytes, 1, 0, NULL, NULL); }
static void call_recvmsg(void) {
    struct iovec piece = {bytes, 1};
    recvmsg(fd, &(struct msghdr){.msg_iov = &piece, .msg_iovlen = 1}, 0);
}
static void call_peek(void) { recv(fd, bytes, 1, MSG_PEEK); }
static void call_accept(void) { accept(listening, NULL, NULL); }
static void call_accept4(void) { accept4(listening, NULL, NULL, SOCK_CLOEXEC); }
static void call_poll(void) { poll(&(struct pollfd){fd, POLLIN, 0}, 1, -1); }
static void call_poll_listener(void) { poll(&(struct pollfd){listening, POLLIN, 0}, 1, -1); }
static void call_ppoll(void) {
    sigset_t mask;
    sigemptyset(&mask);
    ppoll(&(struct pollfd){fd, POLLIN, 0}, 1, NULL, &mask);
}
static void call_select(void) {
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(fd, &wanted);
    select(fd + 1, &wanted, NULL, NULL, NULL);
}
static void call_pselect(void) {
    fd_set wanted;
    FD_ZERO(&wanted);
    FD_SET(fd, &wanted);
    pselect(fd + 1, &wanted, NULL, NULL, NULL, NULL);
}
static void call_epoll_wait(void) {
    struct epoll_event event;
    epoll_wait(set, &event, 1, -1);
}
static void call_epoll_pwait(void) {
    struct epoll_event event;
    sigset_t mask;
    sigfillset(&mask);
    epoll_pwait(set, &event, 1, -1, &mask);
}
static void call_splice(void) {
    int ends[2];
    need(pipe(ends) == 0, "pipe");
    splice(fd, NULL, ends[1], NULL, 1, 0);
}
static void call_pipe(void) {
    int ends[2];
    need(pipe(ends) == 0, "pipe");
    poll(&(struct pollfd){ends[0], POLLIN, 0}, 1, -1);
}
static void fill_up(void) {
    for (;;)
        write(fd, bytes, sizeof bytes);
}
static void call_send(void) {
    for (;;)
        send(fd, bytes, sizeof bytes, MSG_NOSIGNAL);
}
static void call_writev(void) {
    for (;;)
        writev(fd, &(struct iovec){bytes, sizeof bytes}, 1);
}

static int cleaned;
static void clean(void *unused) {
    (void)unused;
    cleaned++;
}

static void *runs(void *call) {
    pthread_cleanup_push(clean, NULL);
    announced = gettid();
    ((void (*)(void))call)();
    pthread_cleanup_pop(0);
    return NULL;
}

static void cancelled_in(const char *name, void (*call)(void)) {
    pthread_t thread;
    void *value;
    announced = 0;
    cleaned = 0;
    need(pthread_create(&thread, NULL, runs, call) == 0, "thread");
    until_it_waits(&announced);
    result(name, pthread_cancel(thread));
    pthread_join(thread, &value);
    say("  cancelled %d, cleaned up %d", value == PTHREAD_CANCELED, cleaned);
}

static void *reads_what_is_there(void *go) {
    char byte;
    read_all(*(int *)go, &byte, 1);
    read(fd, &byte, 1);
    return NULL;
}

static void *forbids_it(void *go) {
    char byte;
    int old;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
    announced = gettid();
    result("a read while it is disabled", read(fd, &byte, 1));
    write_all(*(int *)go, &byte, 1);
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &old);
    say("state before %d", old == PTHREAD_CANCEL_DISABLE);
    read(fd, &byte, 1);
    say("not to be reached");
    return NULL;
}

static void *at_any_time(void *unused) {
    (void)unused;
    int old;
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
    announced = gettid();
    while (read(fd, bytes, 1) != 2)
        ;
    return NULL;
}

static void reads_once_more(void *unused) {
    (void)unused;
    char byte = 0;
    announced = gettid();
    result("a read in the clean-up", read(fd, &byte, 1));
}

static void *cleans_by_reading(void *unused) {
    (void)unused;
    char byte;
    pthread_cleanup_push(reads_once_more, NULL);
    announced = gettid();
    read(fd, &byte, 1);
    pthread_cleanup_pop(0);
    return NULL;
}

static void join(const char *name, pthread_t thread) {
    void *value;
    pthread_join(thread, &value);
    say("%s: cancelled %d", name, value == PTHREAD_CANCELED);
}

static void solo(void) {
    listening = listener_on("127.0.0.1", 16);
    fd = dial_port(port_of(listening));
    other = accept(listening, NULL, NULL);
    set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    cancelled_in("read", call_read);
    cancelled_in("readv", call_readv);
    cancelled_in("recv", call_recv);
    cancelled_in("recvfrom", call_recvfrom);
    cancelled_in("recvmsg", call_recvmsg);
    cancelled_in("peek", call_peek);
    cancelled_in("accept", call_accept);
    cancelled_in("accept4", call_accept4);
    cancelled_in("poll", call_poll);
    cancelled_in("poll of a listener", call_poll_listener);
    cancelled_in("poll of a pipe", call_pipe);
    cancelled_in("ppoll", call_ppoll);
    cancelled_in("select", call_select);
    cancelled_in("pselect", call_pselect);
    cancelled_in("epoll_wait", call_epoll_wait);
    cancelled_in("epoll_pwait", call_epoll_pwait);
    cancelled_in("splice", call_splice);

    pthread_t thread;
    int go[2];
    char byte;
    need(pipe(go) == 0, "pipe");
    write_all(other, "a", 1);
    wait_for(fd, POLLIN);
    pthread_create(&thread, NULL, reads_what_is_there, &go[0]);
    pthread_cancel(thread);
    join("before a call that would not wait", thread);
    result("its byte is left", recv(fd, &byte, 1, 0));

    announced = 0;
    pthread_create(&thread, NULL, forbids_it, &go[1]);
    until_it_waits(&announced);
    pthread_cancel(thread);
    write_all(other, "b", 1);
    read_all(go[0], &byte, 1);
    join("disabled, then enabled", thread);

    announced = 0;
    pthread_create(&thread, NULL, at_any_time, NULL);
    until_it_waits(&announced);
    pthread_cancel(thread);
    join("asynchronous", thread);

    announced = 0;
    pthread_create(&thread, NULL, cleans_by_reading, NULL);
    until_it_waits(&announced);
    announced = 0;
    pthread_cancel(thread);
    until_it_waits(&announced); /* in the clean-up: the read that was cancelled takes no byte */
    write_all(other, "c", 1);
    join("with a clean-up that waits", thread);

    write_all(other, "d", 1);
    result("the connection works", read(fd, &byte, 1));
    cancelled_in("write", fill_up);
    cancelled_in("send", call_send);
    cancelled_in("writev", call_writev);
    close(fd);
    ssize_t got;
    while ((got = read(other, bytes, sizeof bytes)) > 0)
        ;
    result("its end", got);
}
