/* pair: memory that is shared with other processes is left out of a core dump, of both ends. */
#include "memory.h"

static void server(void) {
    int fd = serve_one();
    say("dumped %d", mappings(NULL, " dd", 0));
    meet();
    close(fd);
}

static void client(void) {
    int fd = dial();
    meet();
    say("dumped %d", mappings(NULL, " dd", 0));
    close(fd);
}
