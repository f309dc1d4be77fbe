/* pair: a connection that is reset before connect is called again has failed, and its socket connects again. */
#include "contract.h"

static void server(void) {
    int listening = listener(16);
    for (int i = 0; i < 4; i++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        struct linger at_once = {1, 0};
        if (i % 2 == 0)
            need(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0, "SO_LINGER");
        else
            write_all(fd, "hello", 5);
        close(fd);
        meet();
    }
}

static void again(const char *what, int port, int asks_first) {
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    char bytes[6] = "";
    say("%s", what);
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    wait_for(fd, POLLRDHUP);
    meet();
    if (asks_first)
        say("SO_ERROR %s", error_name(so_error(fd)));
    result("connect again", connect(fd, (struct sockaddr *)&name, sizeof name));
    say_poll("after that", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    result("connect once more", connect(fd, (struct sockaddr *)&name, sizeof name));
    wait_for(fd, POLLIN);
    read_all(fd, bytes, 5);
    say("read %s", bytes);
    meet();
    result("that stood", connect(fd, (struct sockaddr *)&name, sizeof name));
    close(fd);
}

static void client(void) {
    int port = hear();
    again("reset", port, 0);
    again("reset, and the error asked for", port, 1);
}
