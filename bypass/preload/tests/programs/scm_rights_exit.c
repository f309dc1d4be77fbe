/* pair: a process that has passed many connections, one after the other, ends soon although no process has received
 * the last one. */
#include "contract.h"

#define ROUNDS 15
/* Once a second for each connection that was ever passed would be longer. */
#define SOON_S 10

static void receive_each(int over) {
    for (int i = 0; i < ROUNDS; i++) {
        int fd;
        take(over, &fd, 1);
        need(send(fd, "t", 1, MSG_NOSIGNAL) == 1, "send");
        close(fd);
        write_all(over, "t", 1);
    }
}

static void pass_each(int over, int listening) {
    char byte;
    for (int i = 0; i < ROUNDS; i++) {
        int fd = accept(listening, NULL, NULL);
        hand(over, &fd, 1);
        read_all(over, &byte, 1);
        close(fd);
        usleep(5000);
    }
    int last = accept(listening, NULL, NULL);
    hand(over, &last, 1);
    exit(0);
}

static void server(void) {
    int pair[2], status;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    int listening = listener(32);
    pid_t sender = fork();
    if (sender == 0)
        pass_each(pair[0], listening);
    receive_each(pair[1]);
    begin_naps();
    need(waitpid(sender, &status, 0) == sender, "waitpid");
    say("ended well %d, soon %d", status == 0, naps_s() < SOON_S);
    meet();
}

static void client(void) {
    int port = hear(), good = 0;
    char byte;
    for (int i = 0; i < ROUNDS; i++) {
        int fd = dial_port(port);
        good += read(fd, &byte, 1) == 1;
    }
    dial_port(port);
    say("read %d", good);
    meet();
}
