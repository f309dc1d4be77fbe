/* pair: shutdown of each direction, what both ends then read, write and poll. */
#include "contract.h"

static void server(void) {
    char buffer[16];
    int fd = serve_one();
    wait_for(fd, POLLIN);
    result("read what came before", read(fd, buffer, sizeof buffer));
    result("read the end", read(fd, buffer, sizeof buffer));
    say_poll("half closed by the peer", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    meet();
    result("write back", write(fd, "back", 4));
    result("shutdown write", shutdown(fd, SHUT_WR));
    say_poll("closed both ways", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    result("write", send(fd, "x", 1, MSG_NOSIGNAL));
    meet();
    close(fd);
    fd = serve_one();
    meet();
    result("read", read(fd, buffer, 4));
    meet();
    meet();
}

static void client(void) {
    char buffer[16];
    int fd = dial();
    result("write", write(fd, "hello", 5));
    result("shutdown write", shutdown(fd, SHUT_WR));
    result("shutdown write again", shutdown(fd, SHUT_WR));
    result("write after it", send(fd, "x", 1, MSG_NOSIGNAL));
    meet();
    read_all(fd, buffer, 4);
    say("read %.4s", buffer);
    result("read the end", read(fd, buffer, 1));
    wait_for(fd, POLLHUP);
    say_poll("closed both ways", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    meet();
    result("shutdown of a closed connection", shutdown(fd, SHUT_RDWR));
    close(fd);

    fd = dial();
    result("shutdown read", shutdown(fd, SHUT_RD));
    say_poll("after it", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    result("read", read(fd, buffer, 1));
    result("write still works", write(fd, "more", 4));
    meet();
    meet();
    result("shutdown both", shutdown(fd, SHUT_RDWR));
    say_poll("after it", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    result("wrong direction", shutdown(fd, 7));
    meet();
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    result("shutdown unconnected", shutdown(fresh, SHUT_WR));
}
