/* pair: select with wrong times, and with more descriptors than its sets have bits: the kernel looks at no more
 * than its table has places, so neither may we. */
#include "contract.h"
#include <sys/mman.h>

/* A set behind which nothing is mapped. */
static fd_set *set_before_nothing(void) {
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(pages != MAP_FAILED && munmap(pages + 4096, 4096) == 0, "pages");
    return (fd_set *)(pages + 4096 - sizeof(fd_set));
}

static void times(int fd) {
    static const struct timeval all[] = {{-1, 0}, {0, -1}, {-1, -1}, {0, 1500000}, {0, 0}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct timeval time = all[i];
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        result("select", select(fd + 1, &set, NULL, NULL, &time));
    }
}

static void server(void) {
    int fd = serve_one();
    times(fd);
    fd_set *set = set_before_nothing();
    FD_ZERO(set);
    FD_SET(fd, set);
    struct timeval none = {0, 0};
    result("of as many as may be", select(1 << 20, set, NULL, NULL, &none));
    FD_SET(fd, set);
    meet();
    result("one is ready", select(1 << 20, set, NULL, NULL, NULL));
    say("it is %d", FD_ISSET(fd, set) != 0);
    result("dup3 with a wrong flag", dup3(0, fd, 0x1000));
    char letter;
    result("leaves the other open", recv(fd, &letter, 1, 0));
}

static void client(void) {
    int fd = dial();
    meet();
    write_all(fd, "x", 1);
    need(read(fd, (char[1]){0}, 1) == 0, "end");
}
