/* pair: a server that sends very many small files again and again has its descriptors left for other things. */
#include "contract.h"
#include <sys/sendfile.h>

#define FILES 400
#define GROUP 50
#define ROUNDS 5
#define BYTES 1024
#define LIMIT 300
#define MORE 100

static void server(void) {
    char folder[] = "/tmp/contract-contents-XXXXXX", name[64], bytes[BYTES];
    struct rlimit limit = {LIMIT, LIMIT};
    int listening = listener(4), fd = accept(listening, NULL, NULL), sent = 0, opened = 0;
    need(fd >= 0 && mkdtemp(folder) && chdir(folder) == 0, "a folder");
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    memset(bytes, 'x', sizeof bytes);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%d", i);
        int file = open(name, O_CREAT | O_WRONLY, 0600);
        need(file >= 0 && write(file, bytes, BYTES) == BYTES, "a file");
        close(file);
    }
    usleep(2200000); /* what has changed just now may change again */
    for (int first = 0; first < FILES; first += GROUP)
        for (int round = 0; round < ROUNDS; round++)
            for (int i = first; i < first + GROUP; i++) {
                snprintf(name, sizeof name, "%d", i);
                int file = open(name, O_RDONLY);
                need(file >= 0, "open");
                sent += sendfile(fd, file, NULL, BYTES) == BYTES;
                close(file);
            }
    say("sent %d", sent);
    shutdown(fd, SHUT_WR);
    int more[MORE];
    for (int i = 0; i < MORE; i++)
        opened += (more[i] = open("/dev/null", O_RDONLY)) >= 0;
    say("opened %d", opened);
    tell(0);
    result("accept works", accept(listening, NULL, NULL) >= 0);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%d", i);
        unlink(name);
    }
    rmdir(folder);
}

static void client(void) {
    static char bytes[65536];
    int port = hear(), fd = dial_port(port);
    ssize_t got;
    long sum = 0;
    while ((got = read(fd, bytes, sizeof bytes)) > 0)
        sum += got;
    say("received %ld", sum);
    hear();
    dial_port(port);
}
