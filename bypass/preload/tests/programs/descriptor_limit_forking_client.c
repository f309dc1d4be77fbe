/* pair: a server that has one descriptor left accepts with it, while a child of the client lives that was forked
 * with a connection. */
#include "contract.h"

static void server(void) {
    int listening = listener_on("127.0.0.1", 16), full[64], count = 0;
    struct rlimit limit = {64, 64};
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    tell(port_of(listening));
    int first = accept(listening, NULL, NULL);
    need(first >= 0, "accept");
    while (count < 64 && (full[count] = open("/dev/null", O_RDONLY)) >= 0)
        count++;
    need(count > 0 && close(full[count - 1]) == 0, "full");
    meet(); /* the client has forked */
    for (int i = 0; i < 3; i++) {
        int fd = accept(listening, NULL, NULL);
        outcome("accept with the last one", fd);
        close(fd);
        meet();
    }
    char byte = 0;
    result("read", read(first, &byte, 1));
    say("from the child: %c", byte);
}

static void client(void) {
    int port = hear(), fd = dial_port(port), leave[2];
    need(pipe(leave) == 0, "pipe");
    hear(); /* the server has one left */
    pid_t child = fork();
    if (child == 0) {
        char byte;
        close(leave[1]);
        _exit(read(leave[0], &byte, 1) == 0 && write(fd, "c", 1) == 1 ? 0 : 1);
    }
    need(child > 0, "fork");
    usleep(1000000); /* a library's message to the server about the child may take until then; the kernel sends none */
    tell(0);
    for (int i = 0; i < 3; i++) {
        int other = dial_port(port);
        char byte;
        result("end", read(other, &byte, 1));
        close(other);
        meet();
    }
    close(leave[1]);
    int status;
    need(waitpid(child, &status, 0) == child, "waitpid");
    result("child", status);
}
