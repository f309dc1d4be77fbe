/* pair: dup, dup2, dup3 and F_DUPFD: one socket under several numbers. */
#include "contract.h"

static void server(void) {
    char buffer[32];
    int fd = serve_one();
    read_all(fd, buffer, 6);
    say("read %.6s", buffer);
    meet();
    say_poll("one of two closed", fd, POLLIN | POLLRDHUP, 20);
    meet();
    wait_for(fd, POLLRDHUP);
    result("read the end", read(fd, buffer, 1));
    meet();
    fd = serve_one();
    wait_for(fd, POLLRDHUP);
    result("read the end after dup2 over it", read(fd, buffer, 1));
    meet();
}

static void client(void) {
    int fd = dial(), copy = dup(fd);
    outcome("dup", copy);
    write_all(fd, "abc", 3);
    write_all(copy, "def", 3);
    int high = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    say("F_DUPFD_CLOEXEC from 100: %d, cloexec %d", high >= 100, fcntl(high, F_GETFD));
    int third = dup3(fd, 200, O_CLOEXEC);
    say("dup3 gives 200: %d, cloexec %d", third == 200, fcntl(200, F_GETFD));
    result("dup3 to itself", dup3(fd, fd, 0));
    result("dup2 to itself is its number", dup2(fd, fd) == fd);
    result("dup2 of a closed one", dup2(900, 901));
    set_nonblocking(copy);
    say("O_NONBLOCK is shared %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    char byte;
    result("read of the first", read(fd, &byte, 1));
    result("FD_CLOEXEC is not shared", fcntl(fd, F_GETFD));
    close(high);
    close(third);
    close(fd);
    result("a closed number", read(fd, &byte, 1));
    result("close twice", close(fd));
    meet();
    meet();
    result("the last close", close(copy));
    meet();
    int victim = dial();
    int file = open("/dev/null", O_RDWR);
    say("dup2 over a live socket %d", dup2(file, victim) == victim);
    result("now a file", write(victim, "xyz", 3));
    result("no socket any more", send(victim, "x", 1, 0));
    meet();
}
