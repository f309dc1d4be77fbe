/* pair: sendfile with and without offset, beyond the end, and after the file has shrunk. */
#include <sys/sendfile.h>
#include "contract.h"

#define LENGTH 300000

static int make_file(void) {
    char name[] = "/tmp/contract-XXXXXX";
    int file = mkstemp(name);
    need(file >= 0, "mkstemp");
    unlink(name);
    static unsigned char buffer[LENGTH];
    fill(buffer, LENGTH, 0);
    write_all(file, buffer, LENGTH);
    return file;
}

static void send_rest(int fd, int file, off_t offset, size_t length) {
    while (length > 0) {
        ssize_t put = sendfile(fd, file, &offset, length);
        need(put > 0, "sendfile");
        length -= put;
    }
    say("offset %ld", (long)offset);
}

static void server(void) {
    int fd = serve_one(), file = make_file();
    send_rest(fd, file, 0, LENGTH);
    say("position is kept: %ld", (long)lseek(file, 0, SEEK_CUR) == LENGTH);
    off_t offset = LENGTH - 10;
    result("beyond the end", sendfile(fd, file, &offset, 1000));
    say("offset %ld", (long)offset);
    result("at the end", sendfile(fd, file, &offset, 1000));
    lseek(file, 100, SEEK_SET);
    result("without offset", sendfile(fd, file, NULL, 50));
    say("position %ld", (long)lseek(file, 0, SEEK_CUR));
    /* The kernel sends the file's own pages: what is still on the way changes with the file. */
    meet();
    need(ftruncate(file, 120) == 0, "truncate");
    offset = 100;
    result("of a shrunk file", sendfile(fd, file, &offset, 50));
    meet();
    need(pwrite(file, "changed", 7, 0) == 7, "pwrite");
    offset = 0;
    result("of a changed file", sendfile(fd, file, &offset, 7));
    offset = -5;
    result("a negative offset", sendfile(fd, file, &offset, 7));
    result("from a socket", sendfile(fd, fd, NULL, 7));
    result("from a closed number", sendfile(fd, 900, NULL, 7));
    int pipes[2];
    need(pipe(pipes) == 0, "pipe");
    offset = 0;
    result("to a pipe", sendfile(pipes[1], file, &offset, 7));
    close(fd);
}

static void client(void) {
    int fd = dial();
    static unsigned char buffer[LENGTH + 100], expected[LENGTH];
    fill(expected, LENGTH, 0);
    read_all(fd, buffer, LENGTH);
    say("the file came %d", memcmp(buffer, expected, LENGTH) == 0);
    read_all(fd, buffer, 10);
    say("its end came %d", memcmp(buffer, expected + LENGTH - 10, 10) == 0);
    read_all(fd, buffer, 50);
    say("a piece came %d", memcmp(buffer, expected + 100, 50) == 0);
    meet();
    read_all(fd, buffer, 20);
    say("what was left came %d", memcmp(buffer, expected + 100, 20) == 0);
    meet();
    read_all(fd, buffer, 7);
    say("the change came %.7s", buffer);
    result("the end", read(fd, buffer, 1));
}
