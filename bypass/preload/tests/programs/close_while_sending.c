/* pair: sendfile and splice go on with the connection that they began with, when another thread closes
 * its descriptor and the number becomes another connection's. */
#include "contract.h"
#include <sys/sendfile.h>

#define LENGTH (6 << 20)

static int fd;
static volatile pid_t announced;

static void *sends_file(void *file) {
    off_t offset = 0;
    announced = gettid();
    size_t sent = 0;
    while (sent < LENGTH) {
        ssize_t put = sendfile(fd, *(int *)file, &offset, LENGTH - sent);
        if (put <= 0)
            break;
        sent += put;
        break;
    }
    say("sent something %d", sent > 0);
    return NULL;
}

static int pipe_ends[2];

static void *feeds(void *unused) {
    static char bytes[65536];
    (void)unused;
    for (;;)
        if (write(pipe_ends[1], bytes, sizeof bytes) <= 0)
            return NULL;
}

static void *splices(void *unused) {
    (void)unused;
    announced = gettid();
    long sent = 0;
    for (;;) {
        ssize_t put = splice(pipe_ends[0], NULL, fd, NULL, 1 << 16, 0);
        if (put <= 0)
            break;
        sent += put;
    }
    return NULL;
}

static void server(void) {
    int listening = listener(16);
    FILE *file = tmpfile();
    need(file && ftruncate(fileno(file), LENGTH) == 0, "file");
    int number = fileno(file), first;
    pthread_t thread;
    for (int way = 0; way < 2; way++) {
        first = fd = accept(listening, NULL, NULL);
        announced = 0;
        if (way == 0) {
            pthread_create(&thread, NULL, sends_file, &number);
        } else {
            pthread_t feeder;
            need(pipe(pipe_ends) == 0, "pipe");
            pthread_create(&feeder, NULL, feeds, NULL);
            pthread_detach(feeder);
            pthread_create(&thread, NULL, splices, NULL);
        }
        until_it_waits(&announced);
        /* The thread's next read of `fd` is not to mean the new connection. */
        fd = -1;
        close(first);
        tell(0);
        int second = accept(listening, NULL, NULL);
        say("the same number %d", second == first);
        meet();
        write_all(second, "own", 3);
        pthread_join(thread, NULL);
        close(second);
    }
}

static void client(void) {
    static char bytes[65536];
    int port = hear();
    for (int way = 0; way < 2; way++) {
        int old = dial_port(port);
        hear();
        int new = dial_port(port);
        meet();
        long sum = 0;
        ssize_t got;
        while ((got = read(old, bytes, sizeof bytes)) > 0)
            sum += got;
        if (way == 0)
            say("the old one got all %d", sum == LENGTH);
        result("its end", got);
        got = recv(new, bytes, sizeof bytes, 0);
        say("the new one got %.*s", (int)got, bytes);
        close(old);
        close(new);
    }
}
