/* pair: a process that has closed its first listener and kept the second forks and is killed, while a client waits
 * at the second one: the child serves it. */
#include "contract.h"

static void serve(int listening, int begin) {
    char letter;
    read_all(begin, &letter, 1);
    int fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    read_all(fd, &letter, 1);
    result("answer", send(fd, &letter, 1, MSG_NOSIGNAL));
    _exit(0);
}

static void server(void) {
    int begin[2], port[2];
    need(pipe(begin) == 0 && pipe(port) == 0, "pipe");
    pid_t parent = fork();
    if (parent == 0) {
        int first = listener_on("127.0.0.1", 16), second = listener_on("127.0.0.1", 16);
        int number = port_of(second);
        close(first);
        if (fork() == 0) {
            alarm(LONG_S);
            serve(second, begin[0]);
        }
        write_all(port[1], &number, sizeof number);
        for (;;)
            pause();
    }
    int number;
    read_all(port[0], &number, sizeof number);
    tell(number);
    hear();
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    write_all(begin[1], "b", 1);
    hear();
    /* The child holds the other end, too: it has said what it has to say. */
    close(port[1]);
    need(read(port[0], &number, sizeof number) == 0, "the child's end");
}

static void client(void) {
    int fd = dial_port(hear());
    char letter = 'x';
    result("question", send(fd, &letter, 1, MSG_NOSIGNAL));
    tell(0);
    say_poll("answer", fd, POLLIN, LONG_MS);
    result("recv", recv(fd, &letter, 1, MSG_DONTWAIT));
    tell(0);
}
