/* pair: recvmmsg has received a message when the connection is reset: the next call says so. */
#include "contract.h"

static volatile pid_t receiver;

static void server(void) {
    int fd = serve_one();
    write_all(fd, "abcd", 4);
    hear();
    struct linger at_once = {.l_onoff = 1};
    need(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0, "SO_LINGER");
    close(fd);
}

static void *receive(void *number) {
    int fd = *(int *)number;
    char bytes[2][4];
    struct iovec pieces[2] = {{bytes[0], 4}, {bytes[1], 4}};
    struct mmsghdr messages[2] = {0};
    for (int i = 0; i < 2; i++) {
        messages[i].msg_hdr.msg_iov = &pieces[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    wait_for(fd, POLLIN);
    receiver = gettid();
    result("recvmmsg", recvmmsg(fd, messages, 2, 0, NULL));
    result("the next call", recv(fd, bytes[0], 4, 0));
    result("and the one after it", recv(fd, bytes[0], 4, 0));
    return NULL;
}

static void client(void) {
    int fd = dial();
    pthread_t thread;
    need(pthread_create(&thread, NULL, receive, &fd) == 0, "pthread_create");
    until_it_waits(&receiver);
    tell(0);
    pthread_join(thread, NULL);
}
