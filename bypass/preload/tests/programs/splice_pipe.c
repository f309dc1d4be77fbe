/* pair: splice from a socket to a pipe and from a pipe to a socket; sendfile from a socket to a pipe; tee between pipes. */
#include "contract.h"
#include <sys/sendfile.h>

static void server(void) {
    int fd = serve_one(), pipes[2];
    need(pipe(pipes) == 0, "pipe");
    need(write(pipes[1], "through a pipe", 14) == 14, "write");
    if (result("pipe to socket", splice(pipes[0], NULL, fd, NULL, 14, 0)) == -1)
        exit(3);
    meet();
    wait_for(fd, POLLIN);
    result("socket to pipe by sendfile", sendfile(pipes[1], fd, NULL, 4));
    result("socket to pipe", splice(fd, NULL, pipes[1], NULL, 1000, 0));
    char buffer[32] = "";
    read_all(pipes[0], buffer, 8);
    say("read %s", buffer);
    set_nonblocking(fd);
    result("nothing there", splice(fd, NULL, pipes[1], NULL, 4, 0));
    off64_t offset = 0;
    result("with an offset", splice(fd, &offset, pipes[1], NULL, 4, 0));
    result("with an offset of the pipe", splice(fd, NULL, pipes[1], &offset, 4, 0));
    result("from a pipe with an offset", splice(pipes[0], &offset, fd, NULL, 4, 0));
    result("into the socket with an offset", splice(pipes[0], NULL, fd, &offset, 4, 0));
    result("with two offsets", splice(fd, &offset, pipes[1], &offset, 4, 0));
    result("with an unknown flag", splice(fd, NULL, pipes[1], NULL, 4, 1 << 8));
    result("with an unknown flag from a pipe", splice(pipes[0], NULL, fd, NULL, 4, 1 << 8));
    result("nothing with an unknown flag", splice(fd, NULL, pipes[1], NULL, 0, 1 << 8));
    result("socket to socket", splice(fd, NULL, fd, NULL, 4, 0));
    meet();
    wait_for(fd, POLLRDHUP);
    result("at the end", splice(fd, NULL, pipes[1], NULL, 4, 0));
}

static void client(void) {
    int fd = dial();
    char buffer[32] = "";
    read_all(fd, buffer, 14);
    say("read %s", buffer);
    write_all(fd, "12345678", 8);
    meet();
    meet();
    close(fd);
}
