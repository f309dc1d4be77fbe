/* pair: the descriptor of a full connection is closed while sendfile waits for its first byte of room. */
#include "contract.h"
#include <sys/sendfile.h>

static int fd;
static volatile pid_t announced;

static void *sends(void *file) {
    off_t offset = 0;
    announced = gettid();
    result("sendfile", sendfile(fd, *(int *)file, &offset, 3));
    say("offset %ld", (long)offset);
    return NULL;
}

static void server(void) {
    static char bytes[65536];
    int file = open("/proc/self/exe", O_RDONLY);
    fd = serve_one();
    int flags = fcntl(fd, F_GETFL);
    set_nonblocking(fd);
    do { // until no byte fits any more: the peer's kernel goes on taking what was sent
        while (write(fd, bytes, sizeof bytes) > 0 || write(fd, bytes, 1) > 0)
            ;
        usleep(300000);
    } while (write(fd, bytes, 1) > 0);
    fcntl(fd, F_SETFL, flags);
    pthread_t thread;
    need(pthread_create(&thread, NULL, sends, &file) == 0, "pthread_create");
    until_it_waits(&announced);
    result("close", close(fd));
    tell(0);
    pthread_join(thread, NULL);
}

static void client(void) {
    static char bytes[65536];
    int mine = dial();
    hear();
    char last[3] = "";
    ssize_t got;
    while ((got = read(mine, bytes, sizeof bytes)) > 0)
        for (ssize_t i = got > 3 ? got - 3 : 0; i < got; i++)
            last[0] = last[1], last[1] = last[2], last[2] = bytes[i];
    result("end", got);
    say("the last bytes are the file's %d", memcmp(last, "\x7f" "EL", 3) == 0);
}
