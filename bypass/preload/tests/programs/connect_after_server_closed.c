/* pair: many short connections, one after the other, which the server ends first and keeps in TIME_WAIT. */
#include "contract.h"

#define ROUNDS 300
#define SLOW_S 0.9
#define SLOW_MAX 10

/* More than the clock of sequence numbers ticks meanwhile. */
static unsigned char block[20000];

static void server(void) {
    int listening = listener(16);
    while (block[0] != 'x') {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        read_all(fd, block, sizeof block);
        close(fd);
    }
}

/* How long it took to connect. */
static double ask(int port, char letter) {
    block[0] = letter;
    double before = now_s();
    int fd = dial_port(port);
    double took = now_s() - before;
    write_all(fd, block, sizeof block);
    need(read(fd, &letter, 1) == 0, "the end");
    close(fd);
    return took;
}

static void client(void) {
    int port = hear(), slow = 0;
    for (int i = 0; i < ROUNDS && slow < SLOW_MAX; i++)
        slow += ask(port, 'a') > SLOW_S;
    ask(port, 'x');
    say("many connects waited for a second attempt: %d", slow == SLOW_MAX);
}
