/* pair: an exec that fails leaves the connections of its process as they were: their ends are heard. */
#include "contract.h"

static void server(void) {
    int listening = listener(16), fds[3];
    for (int i = 0; i < 3; i++)
        fds[i] = accept(listening, NULL, NULL);
    for (int i = 0; i < 3; i++) {
        char *words[] = {"nothing", NULL};
        result("exec", execv("/nothing/of/this/name", words));
    }
    for (int i = 0; i < 3; i++) {
        result("send", send(fds[i], "x", 1, MSG_NOSIGNAL));
        close(fds[i]);
    }
    hear();
}

static void client(void) {
    int port = hear(), fds[3];
    char letter;
    for (int i = 0; i < 3; i++)
        fds[i] = dial_port(port);
    for (int i = 0; i < 3; i++) {
        result("recv", recv(fds[i], &letter, 1, 0));
        say_poll("end", fds[i], POLLIN, LONG_MS);
        result("recv", recv(fds[i], &letter, 1, MSG_DONTWAIT));
    }
    tell(0);
}
