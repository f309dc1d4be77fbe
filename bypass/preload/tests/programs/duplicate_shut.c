/* pair: shutdown of a listener by one of its numbers ends it under the other, too. */
#include "contract.h"

static void server(void) {
    int listening = listener(4), other = dup(listening);
    need(other >= 0, "dup");
    outcome("accept", accept(listening, NULL, NULL));
    result("shutdown", shutdown(listening, SHUT_RDWR));
    meet();
    meet();
    set_nonblocking(other);
    result("accept by the other number", accept(other, NULL, NULL));
}

static void client(void) {
    int port = hear();
    dial_port(port);
    meet();
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    meet();
}
