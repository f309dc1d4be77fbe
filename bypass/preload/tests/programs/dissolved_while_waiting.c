/* pair: a connection is dissolved, by connect to no address, while another thread waits in a call on it. */
#include "contract.h"

static int fd, value, code;
static volatile pid_t waiter;
static volatile sig_atomic_t broken;

static void count_broken(int number) { broken += number == SIGPIPE; }

static void *reads(void *unused) {
    char byte;
    waiter = gettid();
    value = read(fd, &byte, 1);
    code = errno;
    return unused;
}

static void *writes(void *unused) {
    waiter = gettid();
    value = write(fd, "x", 1);
    code = errno;
    return unused;
}

static void dissolve_beside(const char *name, void *(*call)(void *)) {
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    pthread_t thread;
    char byte;
    waiter = 0;
    need(pthread_create(&thread, NULL, call, NULL) == 0, "thread");
    until_it_waits(&waiter);
    result("connect", connect(fd, &none, sizeof none));
    pthread_join(thread, NULL);
    say("%s: %d %s, SIGPIPE %d times", name, value, strerrorname_np(code), broken);
    result("the next read", recv(fd, &byte, 1, MSG_DONTWAIT));
    result("the one after that", recv(fd, &byte, 1, MSG_DONTWAIT));
    close(fd);
}

/* Until no byte fits any more: the peer's kernel goes on taking what was sent. */
static void fill_up(void) {
    static char bytes[65536];
    int flags = fcntl(fd, F_GETFL);
    set_nonblocking(fd);
    do {
        while (write(fd, bytes, sizeof bytes) > 0 || write(fd, bytes, 1) > 0)
            ;
        usleep(300000);
    } while (write(fd, bytes, 1) > 0);
    fcntl(fd, F_SETFL, flags);
}

static void client(void) {
    struct sigaction action = {.sa_handler = count_broken};
    int port = hear();
    need(sigaction(SIGPIPE, &action, NULL) == 0, "sigaction");
    fd = dial_port(port);
    dissolve_beside("read", reads);
    fd = dial_port(port);
    fill_up();
    dissolve_beside("write", writes);
    tell(0);
}

static void server(void) {
    int listening = listener(4);
    for (int i = 0; i < 2; i++)
        need(accept(listening, NULL, NULL) >= 0, "accept");
    hear();
}
