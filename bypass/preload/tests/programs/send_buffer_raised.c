/* pair: a write and a poll that wait for room go on when another thread gives the connection a larger send buffer. */
#include "contract.h"

static int fd;
static volatile pid_t announced;

static void fill_it(void) {
    static char bytes[4096];
    for (int refusals = 0; refusals < 5;) {
        ssize_t put = send(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        refusals = put > 0 ? 0 : refusals + 1;
        /* The bytes that are sent move to the other side's buffer. */
        if (put < 0)
            usleep(20000);
    }
}

static void *write_one(void *unused) {
    announced = gettid();
    result("the write that waited", write(fd, "x", 1));
    return unused;
}

static void *poll_one(void *unused) {
    announced = gettid();
    say_poll("the poll that waited", fd, POLLOUT, LONG_MS);
    return unused;
}

static void raise_beside(void *(*wait)(void *), int bytes) {
    pthread_t thread;
    announced = 0;
    need(pthread_create(&thread, NULL, wait, NULL) == 0, "thread");
    until_it_waits(&announced);
    set_int(fd, SOL_SOCKET, SO_SNDBUF, bytes);
    pthread_join(thread, NULL);
}

static void server(void) {
    int from = serve_one();
    meet();
    hear();
    close(from);
}

static void client(void) {
    fd = dial();
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_SNDBUF, 10000);
    meet();
    fill_it();
    raise_beside(write_one, 60000);
    fill_it();
    raise_beside(poll_one, 200000);
    tell(0);
}
