/* pair: how the JVM closes: dup2 of a half-shut pair over the number, then a signal to the reader. */
#include "contract.h"

static int fd, value, code;
static volatile pid_t waiter;

static void nothing(int number) { (void)number; }

static void *reader(void *unused) {
    (void)unused;
    char byte;
    waiter = gettid();
    value = read(fd, &byte, 1);
    code = errno;
    return NULL;
}

static void server(void) {
    int peer = serve_one();
    char byte;
    wait_for(peer, POLLRDHUP);
    result("the end", read(peer, &byte, 1));
    hear();
}

static void client(void) {
    struct sigaction action = {.sa_handler = nothing};
    sigaction(SIGUSR2, &action, NULL);
    fd = dial();
    int pair[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    shutdown(pair[0], SHUT_RD);
    close(pair[1]);
    pthread_t thread;
    pthread_create(&thread, NULL, reader, NULL);
    until_it_waits(&waiter);
    say("dup2 %d", dup2(pair[0], fd) == fd);
    /* Until the reader has left its call; a signal that comes too early is lost. */
    while (pthread_tryjoin_np(thread, NULL) == EBUSY) {
        pthread_kill(thread, SIGUSR2);
        usleep(10000);
    }
    say("the reader came back %s", value == -1 && code == EINTR ? "with EINTR" : "with the end");
    result("the number reads as ended", read(fd, &code, 1));
    result("close", close(fd));
    tell(0);
}
