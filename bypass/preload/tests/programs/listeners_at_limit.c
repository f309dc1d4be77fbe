/* solo: listeners that were closed leave their descriptors to a program that makes others and never waits. */
#define SOLO
#include "contract.h"

static void solo(void) {
    struct rlimit limit = {256, 256};
    int full[256], count = 0;
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    for (int i = 0; i < 500; i++)
        close(listener_on("127.0.0.1", 4));
    while (count < 256 && (full[count] = open("/dev/null", O_RDONLY)) >= 0)
        count++;
    say("at least 100 files: %d", count >= 100);
}
