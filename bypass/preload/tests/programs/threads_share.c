/* pair: several threads read and write one connection; no byte is lost or doubled. */
#include "contract.h"

#define THREADS 4
#define EACH 400000

static int fd;
static uint64_t sums[THREADS], lengths[THREADS];

static void *writer(void *unused) {
    (void)unused;
    char block[1000];
    memset(block, 3, sizeof block);
    for (int done = 0; done < EACH; done += sizeof block)
        write_all(fd, block, sizeof block);
    return NULL;
}

static void *reader(void *number) {
    unsigned char block[777];
    ssize_t got;
    while ((got = read(fd, block, sizeof block)) > 0) {
        for (ssize_t i = 0; i < got; i++)
            sums[(intptr_t)number] += block[i];
        lengths[(intptr_t)number] += got;
    }
    return NULL;
}

static void run(void *(*what)(void *)) {
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, what, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void server(void) {
    fd = serve_one();
    run(reader);
    uint64_t sum = 0, length = 0;
    for (int i = 0; i < THREADS; i++) {
        sum += sums[i];
        length += lengths[i];
    }
    say("length %lu sum %lu", length, sum);
}

static void client(void) {
    fd = dial();
    run(writer);
    close(fd);
}
