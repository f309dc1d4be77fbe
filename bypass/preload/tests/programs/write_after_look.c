/* pair: bytes that are written after a look that found nothing leave, whatever the writer does then. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    for (int round = 0; round < 3; round++) {
        char byte;
        read_all(fd, &byte, 1);
        say("round %d: %c", round, byte);
        tell(round);
    }
}

static void client(void) {
    int fd = dial();
    for (int round = 0; round < 3; round++) {
        /* Nothing moves for so long that no timer looks after the connection. */
        usleep(400000);
        say_poll("a look", fd, POLLIN, 0);
        char byte = 'a' + round;
        write_all(fd, &byte, 1);
        /* No call on the connection until the byte has come. */
        hear();
    }
}
