/* pair: calls of many threads at once that work leave errno alone, too. */
#include "contract.h"
#include <stdatomic.h>

enum { MARK = 77, THREADS = 8, CONNECTIONS = 100 };

static atomic_long failed, changed;
static int port, listening;

static long look(long done) {
    failed += done < 0;
    changed += errno != MARK;
    errno = MARK;
    return done;
}

static void exchange(int fd, int writes_first) {
    char letter = 'x';
    if (writes_first)
        look(send(fd, &letter, 1, MSG_NOSIGNAL));
    look(recv(fd, &letter, 1, 0));
    if (!writes_first)
        look(send(fd, &letter, 1, MSG_NOSIGNAL));
    look(close(fd));
}

static void *serve(void *unused) {
    errno = MARK;
    for (int i = 0; i < CONNECTIONS; i++)
        exchange(look(accept(listening, NULL, NULL)), 0);
    return unused;
}

static void *use(void *unused) {
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    errno = MARK;
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = look(socket(AF_INET, SOCK_STREAM, 0));
        look(connect(fd, (struct sockaddr *)&name, sizeof name));
        exchange(fd, 1);
    }
    return unused;
}

static void in_threads(void *(*work)(void *)) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        need(pthread_create(&threads[i], NULL, work, NULL) == 0, "pthread_create");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    say("%ld calls failed, %ld changed errno", (long)failed, (long)changed);
}

static void server(void) {
    listening = listener(128);
    in_threads(serve);
    meet();
}

static void client(void) {
    port = hear();
    in_threads(use);
    meet();
}
