/* pair: close with SO_LINGER waits for the other host, not longer than it is to, or resets. */
#include "contract.h"

#define BYTES 20000

static int accept_lingering(int listening, int seconds) {
    int fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    struct linger linger = {1, seconds};
    need(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0, "SO_LINGER");
    return fd;
}

static void say_close(const char *name, int fd, double least_s, double most_s) {
    double begun_s = now_s();
    result(name, close(fd));
    double took_s = now_s() - begun_s;
    say("  not too early %d, not too late %d", took_s >= least_s, took_s < most_s);
}

static void server(void) {
    static unsigned char bytes[BYTES];
    int listening = listener(4);
    int gone = accept_lingering(listening, 1);
    int well = accept_lingering(listening, LONG_S);
    int reset = accept_lingering(listening, 0);
    meet();
    write_all(gone, "x", 1);
    say_close("close towards a host that is gone", gone, 0.9, LONG_S);
    fill(bytes, BYTES, 0);
    write_all(well, bytes, BYTES);
    set_nonblocking(well);
    say_close("close towards one that is well", well, 0, LONG_S / 2);
    tell(0);
    say_close("close without time", reset, 0, LONG_S / 2);
    meet();
}

static void client(void) {
    stay_on_the_kernel("client");
    int port = hear(), gone = dial_port(port), well = dial_port(port), reset = dial_port(port);
    deafen(gone);
    meet();
    hear();
    int waiting = -1;
    result("FIONREAD", ioctl(well, FIONREAD, &waiting));
    say("  all bytes are here when close returns %d", waiting == BYTES);
    wait_for(reset, POLLIN);
    char byte;
    result("without time", read(reset, &byte, 1));
    meet();
}
