/* pair: a request ended by half-close is answered with its checksum. */
#include "contract.h"

#define LENGTH (3 * 1024 * 1024 + 17)

static void server(void) {
    int fd = serve_one();
    static unsigned char buffer[5000];
    uint64_t sum = 0, length = 0;
    ssize_t got;
    while ((got = read(fd, buffer, sizeof buffer)) > 0) {
        sum = checksum(sum, buffer, got);
        length += got;
    }
    result("read at the end", got);
    say("length %lu sum %016lx", length, sum);
    write_all(fd, &sum, sizeof sum);
    close(fd);
}

static void client(void) {
    int fd = dial();
    static unsigned char buffer[LENGTH];
    fill(buffer, LENGTH, 0);
    write_all(fd, buffer, LENGTH);
    result("shutdown", shutdown(fd, SHUT_WR));
    uint64_t sum;
    read_all(fd, &sum, sizeof sum);
    say("sum %016lx, mine %d", sum, sum == checksum(0, buffer, LENGTH));
    result("read the end", read(fd, buffer, 1));
}
