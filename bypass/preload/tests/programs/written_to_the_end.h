/* Streams that end in a point, of which the other role hears when a part was read. */
#ifndef WRITTEN_TO_THE_END_H
#define WRITTEN_TO_THE_END_H
#include "contract.h"

#define STREAMS 20
#define PIECE (1 << 18)
#define PART (4 * PIECE)

static char bytes[PIECE];

UNUSED static void read_streams(void) {
    int port = hear(), complete = 0;
    for (int i = 0; i < STREAMS; i++) {
        int fd = dial_port(port);
        char last = 0;
        ssize_t got, sum = 0;
        while ((got = read(fd, bytes, PIECE)) > 0) {
            if (sum < PART && sum + got >= PART)
                tell(0);
            sum += got;
            last = bytes[got - 1];
        }
        complete += got == 0 && last == '.';
        close(fd);
    }
    say("%d streams were complete", complete);
}
#endif
