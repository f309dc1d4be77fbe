/* pair: 100 MB by sendfile in one call, and as much by write, each on a connection of its own: every byte
 * is there, and in its place. */
#include "contract.h"
#include <sys/sendfile.h>

#define BLOCK (1 << 20)
#define BLOCKS 100

static uint64_t block[BLOCK / 8];

/* No two words of the stream are the same. */
static void fill_block(uint64_t number) {
    for (uint64_t i = 0; i < BLOCK / 8; i++)
        block[i] = (number * (BLOCK / 8) + i) * 0x9e3779b97f4a7c15u;
}

static int large_file(void) {
    char name[] = "/tmp/bypass-contract-XXXXXX";
    int file = mkstemp(name);
    need(file >= 0 && unlink(name) == 0, "a file");
    for (uint64_t number = 0; number < BLOCKS; number++) {
        fill_block(number);
        write_all(file, block, sizeof block);
    }
    return file;
}

static void server(void) {
    int file = large_file(), listening = listener(4);
    int fd = accept(listening, NULL, NULL);
    off_t start = 0;
    size_t left = (size_t)BLOCKS * BLOCK;
    ssize_t sent = sendfile(fd, file, &start, left);
    say("sendfile sent all %d, the offset is %ld", sent == (ssize_t)left, (long)start);
    close(fd);
    fd = accept(listening, NULL, NULL);
    for (uint64_t number = 0; number < BLOCKS; number++) {
        fill_block(number);
        write_all(fd, block, sizeof block);
    }
    close(fd);
}

static void receive(const char *name, int fd) {
    uint64_t place = 0, wrong = 0, words[8192];
    size_t held = 0;
    ssize_t got;
    /* Reads of odd lengths; an incomplete word waits for the next. */
    while ((got = read(fd, (char *)words + held, sizeof words - held - place % 5)) > 0) {
        size_t all = held + got, whole = all / 8;
        for (size_t i = 0; i < whole; i++)
            wrong += words[i] != place++ * 0x9e3779b97f4a7c15u;
        held = all - whole * 8;
        memmove(words, words + whole, held);
    }
    result("the end", got);
    say("%s: %lu bytes, %lu words wrong", name, place * 8 + held, wrong);
}

static void client(void) {
    int port = hear();
    receive("sendfile", dial_port(port));
    receive("write", dial_port(port));
}
