/* pair: what a program does with its connections after the end of main: handlers, destructors, and
 * threads that are still inside calls. */
#include "contract.h"

static int fds[4];

static void last_words(void) { write_all(fds[0], "handler", 7); }

__attribute__((destructor)) static void very_last_words(void) {
    if (fds[1]) {
        write_all(fds[1], "destructor", 10);
        close(fds[1]);
    }
}

static void *read_on(void *unused) {
    char byte;
    read(fds[2], &byte, 1);
    return unused;
}

static void *write_on(void *unused) {
    static char block[65536];
    while (write(fds[3], block, sizeof block) > 0)
        ;
    return unused;
}

static void server(void) {
    signal(SIGPIPE, SIG_IGN);
    atexit(last_words);
    int listening = listener(16);
    for (int i = 0; i < 4; i++)
        fds[i] = accept(listening, NULL, NULL);
    pthread_t reader, writer;
    pthread_create(&reader, NULL, read_on, NULL);
    pthread_create(&writer, NULL, write_on, NULL);
    meet();
    exit(0);
}

static void client(void) {
    int port = hear(), mine[4];
    char text[16];
    for (int i = 0; i < 4; i++)
        mine[i] = dial_port(port);
    meet();
    for (int i = 0; i < 3; i++) {
        memset(text, 0, sizeof text);
        ssize_t got = recv(mine[i], text, sizeof text - 1, MSG_WAITALL);
        result("bytes", got);
        say("%s", text);
    }
    static char block[65536];
    ssize_t got;
    while ((got = read(mine[3], block, sizeof block)) > 0)
        ;
    result("the end of what never ended", got);
}
