/* pair: connections have the options of a listener that comes from another program. */
#include "contract.h"

static void say_int(const char *name, int fd, int level, int option) {
    int value = -1;
    socklen_t length = sizeof value;
    need(getsockopt(fd, level, option, &value, &length) == 0, name);
    say("%s %d", name, value);
}

static void say_options(int fd) {
    struct linger linger;
    struct timeval time;
    socklen_t length = sizeof linger;
    say_int("SO_KEEPALIVE", fd, SOL_SOCKET, SO_KEEPALIVE);
    say_int("SO_OOBINLINE", fd, SOL_SOCKET, SO_OOBINLINE);
    say_int("TCP_NODELAY", fd, IPPROTO_TCP, TCP_NODELAY);
    say_int("SO_RCVLOWAT", fd, SOL_SOCKET, SO_RCVLOWAT);
    need(getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length) == 0, "SO_LINGER");
    say("SO_LINGER %d, %d s", linger.l_onoff, linger.l_linger);
    length = sizeof time;
    need(getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &length) == 0, "SO_RCVTIMEO");
    say("SO_RCVTIMEO %ld us", (long)(time.tv_sec * 1000000 + time.tv_usec));
}

/* The second image is this program again, with the number in the environment. */
__attribute__((constructor)) static void second_image(void) {
    const char *text = getenv("CONTRACT_LISTENER");
    char byte;
    for (int i = 0; text && i < 2; i++) {
        int fd;
        do
            fd = accept(atoi(text), NULL, NULL);
        while (fd == -1 && errno == EAGAIN);
        need(fd >= 0, "accept");
        say_options(fd);
        result("read within the time", recv(fd, &byte, 1, 0));
        /* Without a time to linger it is reset. */
        close(fd);
    }
    if (text)
        exit(0);
}

static void server(void) {
    int listening = listener_on("127.0.0.1", 4);
    struct linger at_once = {.l_onoff = 1};
    struct timeval time = {.tv_usec = 300000};
    set_int(listening, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(listening, SOL_SOCKET, SO_OOBINLINE, 1);
    set_int(listening, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(listening, SOL_SOCKET, SO_RCVLOWAT, 2);
    need(setsockopt(listening, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0, "SO_LINGER");
    need(setsockopt(listening, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0, "SO_RCVTIMEO");
    /* A connection has the options of the time when it was made. */
    tell(port_of(listening));
    pid_t child = fork();
    if (child == 0) {
        char number[16];
        snprintf(number, sizeof number, "%d", listening);
        setenv("CONTRACT_LISTENER", number, 1);
        execl("/proc/self/exe", "contract", "server", NULL);
        _exit(9);
    }
    int status;
    waitpid(child, &status, 0);
    say("ended %d", status);
}

static void client(void) {
    int port = hear();
    char byte;
    /* The second one comes after the new program has accepted. */
    for (int i = 0; i < 2; i++) {
        int fd = dial_port(port);
        result("read", read(fd, &byte, 1));
        close(fd);
    }
}
