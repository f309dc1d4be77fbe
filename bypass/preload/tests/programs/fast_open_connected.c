/* pair: MSG_FASTOPEN on a connection that stands already, which is not to be opened. */
#include "contract.h"

static void server(void) {
    int listening = listener(4);
    int fd = accept(listening, NULL, NULL);
    char bytes[8] = "";
    result("sent back", send(fd, "x", 1, MSG_FASTOPEN));
    meet();
    read_all(fd, bytes, 4);
    say("read %.4s", bytes);
    meet();
    close(fd);
    meet();
    fd = accept(listening, NULL, NULL);
    read_all(fd, bytes, 4);
    say("read %.4s", bytes);
    meet();
}

static void try_all(const char *state, int fd, int port) {
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    struct iovec piece = {"ping", 4};
    struct msghdr message = {
        .msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &piece, .msg_iovlen = 1};
    say("%s", state);
    result("send", send(fd, "ping", 4, MSG_FASTOPEN));
    result("send without waiting", send(fd, "ping", 4, MSG_FASTOPEN | MSG_DONTWAIT | MSG_NOSIGNAL));
    result("sendto", sendto(fd, "ping", 4, MSG_FASTOPEN, (void *)&name, sizeof name));
    result("sendmsg", sendmsg(fd, &message, MSG_FASTOPEN));
    result("send of nothing", send(fd, "", 0, MSG_FASTOPEN));
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    char byte;
    meet();
    result("nothing came", recv(fd, &byte, 1, MSG_DONTWAIT));
    try_all("connected", fd, port);
    result("send as usual", send(fd, "pong", 4, 0));
    meet();
    meet();
    result("the end", read(fd, &byte, 1));
    try_all("the peer has closed", fd, port);
    result("shutdown", shutdown(fd, SHUT_WR));
    try_all("shut down", fd, port);

    /* The first send does what is left of a connect that has returned before. */
    fd = socket(AF_INET, SOCK_STREAM, 0);
    set_nonblocking(fd);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    result("connect without waiting", connect(fd, (struct sockaddr *)&name, sizeof name));
    wait_for(fd, POLLOUT);
    try_all("connected since", fd, port);
    result("connect again", connect(fd, (struct sockaddr *)&name, sizeof name));
    meet();
}
