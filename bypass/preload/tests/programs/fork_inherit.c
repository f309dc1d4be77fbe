/* pair: a connection after fork belongs to both processes and ends with the last. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    pid_t child = fork();
    if (child == 0) {
        char buffer[8] = "";
        read_all(fd, buffer, 4);
        say("child read %.4s", buffer);
        write_all(fd, "from child", 10);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    say("child ended %d", status);
    write_all(fd, "from parent", 11);
    tell(0);
    hear();
    child = fork();
    if (child == 0) {
        hear();
        write_all(fd, "last", 4);
        _exit(0);
    }
    result("parent closes", close(fd));
    tell(0);
    waitpid(child, &status, 0);
    say("child ended %d", status);
}

static void client(void) {
    char buffer[32] = "";
    int fd = dial();
    write_all(fd, "ping", 4);
    read_all(fd, buffer, 21);
    say("read %s", buffer);
    hear();
    tell(0);
    hear();
    say_poll("parent closed, child has it", fd, POLLIN | POLLRDHUP, 20);
    tell(0);
    read_all(fd, buffer, 4);
    say("read %.4s", buffer);
    result("read the end", read(fd, buffer, 1));
}
