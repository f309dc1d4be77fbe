/* pair: much through splice and a pipe, from a connection into another, with a slow end. */
#include "contract.h"

#define TOTAL (3 * 1024 * 1024 + 77)

static void server(void) {
    int listening = listener(4), in = accept(listening, NULL, NULL), out = accept(listening, NULL, NULL);
    int pipes[2];
    need(pipe(pipes) == 0, "pipe");
    uint64_t moved = 0;
    for (;;) {
        ssize_t got = splice(in, NULL, pipes[1], NULL, 65536, SPLICE_F_MOVE);
        if (got <= 0) {
            result("the end", got);
            break;
        }
        for (ssize_t left = got; left > 0;) {
            ssize_t put = splice(pipes[0], NULL, out, NULL, left, SPLICE_F_MOVE | SPLICE_F_MORE);
            need(put > 0, "splice out");
            left -= put;
        }
        moved += got;
    }
    say("moved %llu", (unsigned long long)moved);
    write(pipes[1], "last", 4);
    close(in);
    int flags = fcntl(out, F_GETFL);
    fcntl(out, F_SETFL, flags | O_NONBLOCK);
    wait_for(out, POLLOUT);
    result("last", splice(pipes[0], NULL, out, NULL, 4, 0));
    result("an empty pipe", splice(pipes[0], NULL, out, NULL, 4, SPLICE_F_NONBLOCK));
    close(pipes[1]);
    result("a closed pipe", splice(pipes[0], NULL, out, NULL, 4, 0));
    result("no pipe at all", splice(out, NULL, out, NULL, 4, 0));
    result("a closed number", splice(900, NULL, out, NULL, 4, 0));
    result("nothing asked", splice(out, NULL, pipes[0], NULL, 0, 0));
    close(out);
}

static void *feed(void *number) {
    int fd = *(int *)number;
    unsigned char buffer[10000];
    for (uint64_t done = 0; done < TOTAL;) {
        size_t count = TOTAL - done < sizeof buffer ? TOTAL - done : sizeof buffer;
        fill(buffer, count, done);
        write_all(fd, buffer, count);
        done += count;
    }
    shutdown(fd, SHUT_WR);
    return NULL;
}

static void client(void) {
    int port = hear(), in = dial_port(port), out = dial_port(port);
    pthread_t thread;
    pthread_create(&thread, NULL, feed, &in);
    unsigned char buffer[5000];
    uint64_t place = 0, wrong = 0;
    for (ssize_t got; (got = read(out, buffer, sizeof buffer)) > 0;)
        for (ssize_t i = 0; i < got; i++, place++)
            wrong += place < TOTAL && buffer[i] != stream_byte(place);
    pthread_join(thread, NULL);
    say("read %llu, wrong %llu", (unsigned long long)place, (unsigned long long)wrong);
}
