/* pair: shutdown, dup2 and close while another thread waits in a call on the same socket. */
#include "contract.h"

static int fd, value, code;
static pthread_t thread;
static volatile pid_t waiter;

static void *read_one(void *unused) {
    (void)unused;
    char byte;
    waiter = gettid();
    value = read(fd, &byte, 1);
    code = errno;
    return NULL;
}

static void *accept_one(void *unused) {
    (void)unused;
    waiter = gettid();
    value = accept(fd, NULL, NULL);
    code = errno;
    return NULL;
}

static void *poll_one(void *unused) {
    (void)unused;
    struct pollfd one = {fd, POLLIN, 0};
    waiter = gettid();
    value = poll(&one, 1, LONG_MS);
    code = one.revents;
    return NULL;
}

static void start(void *(*what)(void *)) {
    waiter = 0;
    pthread_create(&thread, NULL, what, NULL);
    until_it_waits(&waiter);
}

static void finish(const char *name) {
    pthread_join(thread, NULL);
    say("%s: %d %s", name, value, value == -1 ? strerrorname_np(code) : "");
}

static void server(void) {
    int listening = listener(4);
    for (int i = 0; i < 3; i++)
        outcome("accept", accept(listening, NULL, NULL));
    hear();
    int peer = accept(listening, NULL, NULL);
    hear();
    write_all(peer, "z", 1);
    tell(0);
    fd = listening;
    start(accept_one);
    shutdown(listening, SHUT_RDWR);
    finish("accept ended by shutdown");
    hear();
}

static void client(void) {
    int port = hear();
    fd = dial_port(port);
    start(read_one);
    shutdown(fd, SHUT_RDWR);
    finish("read ended by shutdown of both");
    close(fd);
    fd = dial_port(port);
    start(read_one);
    shutdown(fd, SHUT_RD);
    finish("read ended by shutdown of reading");
    close(fd);
    fd = dial_port(port);
    start(poll_one);
    shutdown(fd, SHUT_RDWR);
    pthread_join(thread, NULL);
    say("poll ended by shutdown: %d %s", value, events(code));
    close(fd);
    tell(0);
    fd = dial_port(port);
    start(read_one);
    int other = fd;
    result("close while a thread reads", close(other));
    tell(0);
    pthread_join(thread, NULL);
    say("the reader still gets what comes: %d", value);
    hear();
    tell(0);
}
