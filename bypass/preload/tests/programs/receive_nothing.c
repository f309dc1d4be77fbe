/* pair: recv of no bytes waits until there is something, or for its time, and takes nothing; read does not wait. */
#include "contract.h"

static char byte;
static volatile pid_t announced;

static void every_way(const char *what, int fd) {
    struct msghdr message = {0};
    say("%s", what);
    result("recv", recv(fd, &byte, 0, MSG_DONTWAIT));
    result("peek", recv(fd, &byte, 0, MSG_DONTWAIT | MSG_PEEK));
    result("peek at all", recv(fd, &byte, 0, MSG_DONTWAIT | MSG_PEEK | MSG_WAITALL));
    result("recv of all", recv(fd, &byte, 0, MSG_DONTWAIT | MSG_WAITALL));
    result("recvmsg", recvmsg(fd, &message, MSG_DONTWAIT));
    result("read", read(fd, &byte, 0));
}

static void *receive(void *fd) {
    announced = gettid();
    result("a recv that waited", recv(*(int *)fd, &byte, 0, 0));
    return NULL;
}

static void waits_for(int fd) {
    pthread_t thread;
    announced = 0;
    need(pthread_create(&thread, NULL, receive, &fd) == 0, "thread");
    until_it_waits(&announced);
    tell(0);
    pthread_join(thread, NULL);
}

static void server(void) {
    int listening = listener(4), fd = accept(listening, NULL, NULL);
    struct timeval time = {.tv_usec = 50000}, for_ever = {0};
    every_way("nothing there", fd);
    need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0, "SO_RCVTIMEO");
    result("within a time", recv(fd, &byte, 0, 0));
    need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &for_ever, sizeof for_ever) == 0, "SO_RCVTIMEO");
    waits_for(fd);
    every_way("a byte there", fd);
    result("it is there still", recv(fd, &byte, 1, 0));
    waits_for(fd);
    every_way("the end", fd);
    fd = accept(listening, NULL, NULL);
    tell(0);
    wait_for(fd, POLLHUP);
    every_way("a reset", fd);
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    struct linger at_once = {1, 0};
    hear();
    write_all(fd, "x", 1);
    hear();
    shutdown(fd, SHUT_WR);
    fd = dial_port(port);
    need(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0, "SO_LINGER");
    hear();
    close(fd);
}
