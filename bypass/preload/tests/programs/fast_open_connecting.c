/* pair: MSG_FASTOPEN on a connection that is being opened. */
#include "contract.h"

/* A full queue: the second SYN is dropped until the first connection is accepted. */
static void server(void) {
    stay_on_the_kernel("server");
    int listening = listener(0);
    char bytes[16] = "";
    hear();
    need(accept(listening, NULL, NULL) >= 0, "accept");
    tell(0);
    int fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    hear();
    wait_for(fd, POLLIN);
    say("came %zd", recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
    say("these %s", bytes);
    tell(0);
    meet();
}

static void send_all_ways(const char *state, int fd) {
    say("%s", state);
    result("send", send(fd, "ping", 4, MSG_FASTOPEN | MSG_NOSIGNAL));
    result("send without waiting", send(fd, "ping", 4, MSG_FASTOPEN | MSG_DONTWAIT));
    result("send of nothing", send(fd, "", 0, MSG_FASTOPEN));
}

static void client(void) {
    int port = hear();
    dial_port(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    set_nonblocking(fd);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    send_all_ways("connecting", fd);
    fcntl(fd, F_SETFL, 0);
    struct timeval little = {0, 50000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &little, sizeof little);
    send_all_ways("connecting, for a while", fd);
    tell(0);
    hear();
    wait_for(fd, POLLOUT);
    send_all_ways("connected", fd);
    tell(0);
    hear();
    meet();
}
