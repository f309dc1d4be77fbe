/* pair: a limit on the size of files does not concern sockets. */
#include "contract.h"

static void limit(void) {
    struct rlimit small = {65536, 65536};
    need(setrlimit(RLIMIT_FSIZE, &small) == 0, "RLIMIT_FSIZE");
}

static void server(void) {
    limit();
    int fd = serve_one();
    char bytes[5];
    read_all(fd, bytes, 5);
    write_all(fd, bytes, 5);
    result("end", read(fd, bytes, 5));
}

static void client(void) {
    limit();
    int fd = dial();
    char bytes[6] = "";
    write_all(fd, "hello", 5);
    read_all(fd, bytes, 5);
    say("%s", bytes);
    close(fd);
}
