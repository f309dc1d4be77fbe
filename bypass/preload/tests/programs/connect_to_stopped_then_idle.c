/* pair: a server that was stopped when a client connected goes on: neither has anything to do then. */
#include "contract.h"

static void say_idle(const char *name) {
    struct timespec before, after, second = {1, 0};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nanosleep(&second, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    long used_ms = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    say("%s is idle: %d", name, used_ms < 100);
}

static void server(void) {
    int listening = listener(16);
    tell(getpid());
    hear();
    int fd = accept(listening, NULL, NULL);
    outcome("accept", fd);
    char byte;
    result("read", read(fd, &byte, 1));
    say_idle("server");
    meet();
}

static void client(void) {
    int port = hear(), process = hear();
    need(kill(process, SIGSTOP) == 0, "stop");
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    wait_for(fd, POLLOUT);
    need(kill(process, SIGCONT) == 0, "go on");
    tell(0);
    outcome("write", write(fd, "x", 1));
    say_idle("client");
    meet();
}
