/* pair: a peer killed by SIGKILL: end of stream, or reset when it had unread bytes. */
#include "contract.h"

static pid_t serving_child(int listening, int answer) {
    pid_t child = fork();
    if (child == 0) {
        int fd = accept(listening, NULL, NULL);
        close(listening);
        if (answer)
            write_all(fd, "last words", 10);
        int value = 1;
        if (write(CHANNEL, &value, sizeof value) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    return child;
}

static void kill_it(pid_t child) {
    int status;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    say("killed %d", WIFSIGNALED(status));
    tell(0);
}

static void server(void) {
    int listening = listener(4);
    pid_t child = serving_child(listening, 1);
    hear();
    kill_it(child);
    child = serving_child(listening, 0);
    hear();
    kill_it(child);
    result("the listener still works", accept(listening, NULL, NULL) >= 0);
    hear();
}

static void client(void) {
    int port = hear();
    char buffer[16];
    int fd = dial_port(port);
    hear();
    tell(0);
    hear();
    wait_for(fd, POLLRDHUP);
    result("read", recv(fd, buffer, 16, MSG_WAITALL));
    result("read the end", read(fd, buffer, 16));
    fd = dial_port(port);
    hear();
    write_all(fd, "unread", 6);
    tell(0);
    hear();
    wait_for(fd, POLLHUP);
    result("read after a reset", read(fd, buffer, 16));
    result("read again", read(fd, buffer, 16));
    fd = dial_port(port);
    tell(0);
}
