/* pair: EPOLLET on a listener whose clients come one after the other, each another process. */
#include "contract.h"

#define CLIENTS 12

static void server(void) {
    int listening = listener(16), set = epoll_create1(0), events = 0, accepted = 0, told = 0;
    set_nonblocking(listening);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET};
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "epoll_ctl");
    while (accepted < CLIENTS) {
        if (epoll_wait(set, &event, 1, LONG_MS) != 1)
            break;
        events++;
        int fd;
        while ((fd = accept(listening, NULL, NULL)) >= 0) {
            char byte;
            read_all(fd, &byte, 1);
            write_all(fd, &byte, 1);
            close(fd);
            accepted++;
        }
        for (; told < accepted; told++)
            tell(0); /* it was the last: the next client is another event */
    }
    say("accepted %d, each was reported %d", accepted, events >= CLIENTS);
}

static void client(void) {
    int port = hear(), good = 0;
    for (int i = 0; i < CLIENTS; i++) {
        pid_t child = fork();
        if (child == 0) {
            int fd = dial_port(port);
            char byte = 0;
            struct timeval patience = {.tv_sec = LONG_S};
            setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
            write_all(fd, "x", 1);
            _exit(read(fd, &byte, 1) == 1 ? 0 : 1);
        }
        int status;
        waitpid(child, &status, 0);
        good += status == 0;
        hear();
        /* Its end has come to the server. */
        usleep(50000);
    }
    say("good %d", good);
}
