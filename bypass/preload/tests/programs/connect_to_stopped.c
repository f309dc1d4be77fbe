/* pair: a connect that must not block, to a server that is stopped. */
#include "contract.h"

static void server(void) {
    int listening = listener(16);
    tell(getpid());
    hear();
    int fd = accept(listening, NULL, NULL);
    outcome("accept", fd);
    char byte;
    result("read", read(fd, &byte, 1));
}

static void client(void) {
    int port = hear(), process = hear();
    struct sockaddr_in nobody = ipv4("127.0.0.1", 1);
    int first = socket(AF_INET, SOCK_STREAM, 0); /* what a first socket sets up is not timed below */
    result("to no listener", connect(first, (struct sockaddr *)&nobody, sizeof nobody));
    close(first);
    begin_naps();
    need(kill(process, SIGSTOP) == 0, "stop");
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    double before = naps_s();
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    say("it was soon back: %d", naps_s() - before < 0.9);
    wait_for(fd, POLLOUT);
    say("error %s", error_name(so_error(fd)));
    need(kill(process, SIGCONT) == 0, "go on");
    tell(0);
    outcome("write", write(fd, "x", 1));
}
