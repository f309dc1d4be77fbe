/* pair: a thread that takes a table of descriptors of its own and closes all in it leaves those of the others open. */
#include "contract.h"
#include <linux/close_range.h>
#include <sys/syscall.h>

static void *closes(void *unused) {
    result("close_range", syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_UNSHARE));
    return unused;
}

static void server(void) {
    int listening = listener(4), fd = accept(listening, NULL, NULL);
    pthread_t thread;
    need(pthread_create(&thread, NULL, closes, NULL) == 0, "pthread_create");
    pthread_join(thread, NULL);
    result("write", write(fd, "x", 1));
    char byte = 0;
    result("read", read(fd, &byte, 1));
    tell(0);
    int another = accept(listening, NULL, NULL);
    say("accepted %d", another >= 0);
    result("write", write(another, "y", 1));
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    char byte = 0;
    result("read", read(fd, &byte, 1));
    result("write", write(fd, "z", 1));
    hear();
    fd = dial_port(port);
    result("read", read(fd, &byte, 1));
    say("%c", byte);
}
