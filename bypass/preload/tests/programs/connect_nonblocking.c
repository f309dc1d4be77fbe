/* pair: a non-blocking connect is in progress, then writable, then connected. */
#include "contract.h"

static void server(void) {
    int listening = listener(16);
    int fd = accept(listening, NULL, NULL);
    outcome("accept", fd);
    char buffer[8] = "";
    read_all(fd, buffer, 5);
    say("read %s", buffer);
    meet();
}

static void client(void) {
    int port = hear();
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    wait_for(fd, POLLOUT);
    say_poll("after connect", fd, POLLIN | POLLOUT, 0);
    say("SO_ERROR %s", error_name(so_error(fd)));
    result("connect again", connect(fd, (struct sockaddr *)&name, sizeof name));
    char byte;
    result("read", read(fd, &byte, 1));
    result("write", write(fd, "hello", 5));
    meet();
}
