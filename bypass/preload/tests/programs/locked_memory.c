/* pair: a server that locks its memory, that to come included, as databases do: what it gets for a client is small. */
#include "memory.h"

static void serve(int listening) {
    int fd = accept(listening, NULL, NULL);
    char letter;
    need(fd >= 0, "accept");
    need(read(fd, &letter, 1) == 1, "read");
    write_all(fd, &letter, 1);
    say("more than 300 MB are resident: %d", status_of("VmRSS:") > 300 << 10);
    say("the end %zd", read(fd, &letter, 1));
    close(fd);
}

static void server(void) {
    mlockall(MCL_CURRENT | MCL_FUTURE); /* refused where it has not the right */
    int listening = listener(4);
    serve(listening);
    serve(listening);
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < 2; i++) {
        int fd = dial_port(port);
        char letter = 'a';
        write_all(fd, &letter, 1);
        read_all(fd, &letter, 1);
        close(fd);
    }
}
