/* pair: a client of many listeners, each of which is closed again, as of an FTP server's: both live on, with few
 * descriptors. */
#include "contract.h"
#include <dirent.h>

#define LISTENERS 80
#define FEW 60

static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    need(folder != NULL, "/proc/self/fd");
    int count = 0;
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* What is closed at the other side is noticed soon. */
static void say_few(int waits_at) {
    double since = now_s();
    while (descriptors() > FEW && now_s() - since < 20) {
        struct pollfd one = {.fd = waits_at, .events = POLLIN};
        poll(&one, 1, 20);
    }
    say("few descriptors %d", descriptors() <= FEW);
}

static void server(void) {
    for (int i = 0; i < LISTENERS; i++) {
        int fd = serve_one();
        write_all(fd, "hello", 5);
        close(fd);
        hear();
    }
    int last = listener(4), fd = accept(last, NULL, NULL);
    need(fd >= 0, "accept");
    meet();
    say_few(fd);
    meet();
}

static void client(void) {
    char bytes[5];
    for (int i = 0; i < LISTENERS; i++) {
        int fd = dial();
        read_all(fd, bytes, 5);
        close(fd);
        tell(0);
    }
    int fd = dial();
    meet();
    say_few(fd);
    meet();
}
