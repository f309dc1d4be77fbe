/* pair: O_NONBLOCK that was taken off a socket before it was connected stays off when a forked child has the socket too,
 * also where a started program had it while the flag was on. */
#include "contract.h"
#include <spawn.h>

extern char **environ;

static int is_nonblocking(int fd) { return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

static void server(void) {
    char byte;
    result("the end", read(serve_one(), &byte, 1));
}

static void client(void) {
    int port = hear(), fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    char *words[] = {"true", NULL};
    pid_t child;
    need(posix_spawn(&child, "/bin/true", NULL, NULL, words, environ) == 0, "posix_spawn");
    need(waitpid(child, NULL, 0) == child, "waitpid");
    need(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0, "F_SETFL");
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    say("before fork: %d", is_nonblocking(fd));
    child = fork();
    if (child == 0) {
        say("in the child: %d", is_nonblocking(fd));
        _exit(0);
    }
    need(waitpid(child, NULL, 0) == child, "waitpid");
    say("behind it: %d", is_nonblocking(fd));
    close(fd);
}
