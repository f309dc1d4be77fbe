/* pair: a reset behind the end of the stream: reads find the end, and writes a broken pipe; one behind our own end, and
 * none where both sides have ended. */
#include "contract.h"

static void reads(int fd) {
    char byte;
    say_poll("poll", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    result("read", read(fd, &byte, 1));
    result("read", read(fd, &byte, 1));
}

static void server(void) {
    int listening = listener(4);
    for (int reads_first = 0; reads_first < 2; reads_first++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        meet();
        wait_for(fd, POLLRDHUP);
        if (reads_first)
            reads(fd);
        meet();
        wait_for(fd, POLLHUP);
        reads(fd);
        if (reads_first)
            say("SO_ERROR %s", error_name(so_error(fd)));
        result("send", send(fd, "x", 1, MSG_NOSIGNAL));
        say("SO_ERROR %s", error_name(so_error(fd)));
        reads(fd);
        close(fd);
    }
    /* The other way round: what is reset has been shut down by us. The reset is reported first, without a signal. */
    int fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    result("shutdown", shutdown(fd, SHUT_WR));
    meet();
    wait_for(fd, POLLHUP);
    result("write", write(fd, "x", 1));
    result("send", send(fd, "x", 1, MSG_NOSIGNAL));
    /* A close with bytes unread, and one without time to linger, after both have ended. */
    for (int i = 0; i < 2; i++) {
        fd = accept(listening, NULL, NULL);
        need(fd >= 0 && write(fd, "x", 1 - i) == 1 - i, "accept");
        shutdown(fd, SHUT_WR);
        wait_for(fd, POLLHUP);
        meet();
        meet();
        say_poll("both have ended", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
        say("SO_ERROR %s", error_name(so_error(fd)));
        close(fd);
    }
}

static void closes_when_both_have_ended(int port, const struct linger *linger) {
    int fd = dial_port(port);
    if (linger)
        need(setsockopt(fd, SOL_SOCKET, SO_LINGER, linger, sizeof *linger) == 0, "SO_LINGER");
    shutdown(fd, SHUT_WR);
    wait_for(fd, POLLHUP);
    meet();
    close(fd);
    meet();
}

static void client(void) {
    int port = hear();
    struct linger at_once = {1, 0};
    for (int i = 0; i < 2; i++) {
        int fd = dial_port(port);
        result("shutdown", shutdown(fd, SHUT_WR));
        meet();
        need(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0, "SO_LINGER");
        meet();
        close(fd);
    }
    int fd = dial_port(port);
    need(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once) == 0, "SO_LINGER");
    meet();
    close(fd);
    closes_when_both_have_ended(port, NULL);
    closes_when_both_have_ended(port, &at_once);
}
