/* pair: a client writes and ends while the server is stopped, for longer than some retransmissions. */
#include "contract.h"

#define LENGTH (100 << 10)
#define STOPPED_S 3

static unsigned char block[LENGTH];

static void server(void) {
    int listening = listener(16);
    tell(getpid());
    int fd = accept(listening, NULL, NULL);
    tell(0);
    long total = 0, got;
    while ((got = read(fd, block, sizeof block)) > 0)
        total += got;
    say("%ld bytes, then %s", total, got == 0 ? "the end" : strerrorname_np(errno));
}

static void client(void) {
    int port = hear(), process = hear(), stopped[2];
    char byte;
    need(pipe(stopped) == 0, "pipe");
    /* Before the connection, so that it does not have it. */
    if (fork() == 0) {
        close(stopped[1]);
        read_all(stopped[0], &byte, 1);
        sleep(STOPPED_S);
        kill(process, SIGCONT);
        _exit(0);
    }
    int fd = dial_port(port);
    hear();
    usleep(50000); /* it sleeps in read, and holds no lock that the client would wait for */
    need(kill(process, SIGSTOP) == 0, "stop");
    write_all(stopped[1], "s", 1);
    write_all(fd, block, sizeof block);
}
