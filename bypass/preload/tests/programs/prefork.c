/* pair: a listener inherited by several children that all accept. */
#include "contract.h"

#define CHILDREN 3
#define CONNECTIONS 60

static void child_loop(int listening) {
    for (;;) {
        int fd = accept(listening, NULL, NULL);
        if (fd < 0)
            _exit(1);
        char letter;
        if (read(fd, &letter, 1) == 1 && letter == 'q') {
            close(fd);
            _exit(0);
        }
        letter++;
        if (write(fd, &letter, 1) != 1)
            _exit(2);
        close(fd);
    }
}

static void server(void) {
    int listening = listener_on("127.0.0.1", 64), good = 0;
    pid_t children[CHILDREN];
    for (int i = 0; i < CHILDREN; i++)
        if ((children[i] = fork()) == 0)
            child_loop(listening);
    tell(port_of(listening));
    for (int i = 0; i < CHILDREN; i++) {
        int status;
        waitpid(children[i], &status, 0);
        good += status == 0;
    }
    say("children ended well %d", good);
}

static void client(void) {
    int port = hear(), right = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = dial_port(port);
        char letter = 'a' + i % 10, answer = 0;
        write_all(fd, &letter, 1);
        read_all(fd, &answer, 1);
        right += answer == letter + 1;
        result("end", read(fd, &answer, 1));
        close(fd);
    }
    say("right answers %d", right);
    for (int i = 0; i < CHILDREN; i++)
        write_all(dial_port(port), "q", 1);
}
