/* pair: bytes that the other side's kernel has, and its program has not read, are acknowledged (SIOCOUTQ); and the processor
 * that a connection comes from is known. */
#include "contract.h"
#include <linux/sockios.h>

static void server(void) {
    int fd = serve_one(), processor = -2;
    socklen_t length = sizeof processor;
    char bytes[1000];
    meet();
    result("SO_INCOMING_CPU", getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &processor, &length));
    say("a processor %d", processor >= 0 && processor < sysconf(_SC_NPROCESSORS_CONF));
    set_int(fd, SOL_SOCKET, SO_INCOMING_CPU, 0);
    need(getsockopt(fd, SOL_SOCKET, SO_INCOMING_CPU, &processor, &length) == 0, "SO_INCOMING_CPU");
    say("as it was set %d", processor >= 0);
    read_all(fd, bytes, sizeof bytes);
    meet();
}

static void client(void) {
    int fd = dial(), left = -1;
    char bytes[1000] = "";
    write_all(fd, bytes, sizeof bytes);
    begin_naps();
    /* The kernel acknowledges late. */
    while (ioctl(fd, SIOCOUTQ, &left) == 0 && left > 0 && naps_s() < 10)
        usleep(1000);
    say("not acknowledged %d", left);
    meet();
    meet();
    result("in the end", ioctl(fd, SIOCOUTQ, &left));
}
