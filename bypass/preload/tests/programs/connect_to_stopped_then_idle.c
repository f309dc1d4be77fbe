/* pair: a server that was stopped when a client connected goes on: neither has anything to do then. */
#include "contract.h"

#define LOOK_MS 250
/* One that looks again and again uses most of the time in each; who stands still on a processor has used it, too, as
 * the kernel counts. */
#define LOOKS_MAX 60

static double used_ms(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return used.tv_sec * 1e3 + used.tv_nsec / 1e6;
}

static void say_idle(const char *name) {
    int is_idle = 0;
    for (int looks = 0; looks < LOOKS_MAX && !is_idle; looks++) {
        double before_ms = used_ms();
        usleep(LOOK_MS * 1000);
        is_idle = used_ms() - before_ms < LOOK_MS / 10.0;
    }
    say("%s is idle: %d", name, is_idle);
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
