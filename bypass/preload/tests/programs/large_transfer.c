/* pair: 24 MiB in both directions at once, blocking, with checksums. */
#include "contract.h"

#define LENGTH (24u * 1024 * 1024)

static int fd;

static void *writer(void *unused) {
    (void)unused;
    static unsigned char block[70001];
    for (uint64_t place = 0; place < LENGTH;) {
        size_t size = sizeof block - place % 1000;
        if (size > LENGTH - place)
            size = LENGTH - place;
        fill(block, size, place);
        write_all(fd, block, size);
        place += size;
    }
    shutdown(fd, SHUT_WR);
    return NULL;
}

static void both(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, writer, NULL);
    static unsigned char block[65536];
    uint64_t place = 0, wrong = 0;
    ssize_t got;
    while ((got = read(fd, block, 1 + place % sizeof block)) > 0) {
        for (ssize_t i = 0; i < got; i++)
            wrong += block[i] != stream_byte(place + i);
        place += got;
    }
    result("read at the end", got);
    say("length %lu wrong bytes %lu", place, wrong);
    pthread_join(thread, NULL);
}

static void server(void) {
    fd = serve_one();
    both();
}

static void client(void) {
    fd = dial();
    both();
}
