/* pair: a connect that fails, or is shut down before it is through, leaves a socket that connects again. */
#include "contract.h"

static int port_full, port_closed, port_open;

static struct sockaddr_in full, closed, open_;

static int connect_to(int fd, struct sockaddr_in *to) {
    return connect(fd, (struct sockaddr *)to, sizeof *to);
}

/* A port that is bound refuses connections, and no other program gets it. */
static int bound_only(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    need(fd >= 0 && bind(fd, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    tell(port_of(fd));
    return fd;
}

/* A listener whose queue is full drops new connections. */
static void server(void) {
    stay_on_the_kernel("server");
    int waiting = listener(0), refusing = bound_only(), open = listener(16);
    hear();
    for (int i = 0; i < 3; i++) {
        int fd = accept(open, NULL, NULL);
        need(fd >= 0, "accept");
        write_all(fd, "hello", 5);
        close(fd);
    }
    meet();
    close(waiting);
    close(refusing);
}

static void say_hello(const char *what, int fd) {
    char bytes[6] = "";
    wait_for(fd, POLLIN);
    read_all(fd, bytes, 5);
    say("%s: %s", what, bytes);
}

static void refused(int asks_first) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    result("connect", connect_to(fd, &closed));
    wait_for(fd, POLLOUT);
    if (asks_first)
        say("SO_ERROR %s", error_name(so_error(fd)));
    result("connect again", connect_to(fd, &closed));
    result("and to one that listens", connect_to(fd, &open_));
    wait_for(fd, POLLOUT);
    result("that stands", connect_to(fd, &open_));
    result("and is one", connect_to(fd, &open_));
    say_hello("served", fd);
    close(fd);
}

static volatile pid_t blocked;
static int blocked_fd, blocked_result, blocked_error;

static void *block(void *unused) {
    blocked = gettid();
    blocked_result = connect_to(blocked_fd, &full);
    blocked_error = errno;
    return unused;
}

static void client(void) {
    port_full = hear(), port_closed = hear(), port_open = hear();
    full = ipv4("127.0.0.1", port_full);
    closed = ipv4("127.0.0.1", port_closed);
    open_ = ipv4("127.0.0.1", port_open);
    tell(0);
    refused(0);
    refused(1);

    /* Its queue has room for one. */
    int first = dial_port(port_full);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    result("connect", connect_to(fd, &full));
    result("shutdown", shutdown(fd, SHUT_RDWR));
    result("write", send(fd, "x", 1, MSG_NOSIGNAL) == -1 ? 0 : 1);
    result("connect elsewhere", connect_to(fd, &open_));
    wait_for(fd, POLLOUT);
    say_hello("served", fd);
    close(fd);

    blocked_fd = socket(AF_INET, SOCK_STREAM, 0);
    pthread_t thread;
    need(pthread_create(&thread, NULL, block, NULL) == 0, "pthread_create");
    until_it_waits(&blocked);
    result("shutdown", shutdown(blocked_fd, SHUT_RDWR));
    need(pthread_join(thread, NULL) == 0, "pthread_join");
    errno = blocked_error;
    result("blocked connect", blocked_result);
    close(blocked_fd);
    close(first);
    meet();
}
