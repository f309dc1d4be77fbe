/* pair: stdio for both directions over one connection: flushed with lines unread, and where nothing can be sought. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    FILE *both = fdopen(fd, "r+");
    char line[64] = "";
    wait_for(fd, POLLIN);
    usleep(100000);
    fgets(line, sizeof line, both);
    say("first %s", line);
    result("flushed with a line unread", fflush(both));
    fgets(line, sizeof line, both);
    say("second %s", line);
    result("ftell", ftell(both));
    result("fseek", fseek(both, 0, SEEK_SET));
    result("rewind's error", (errno = 0, rewind(both), errno));
    fputs("answer\n", both);
    result("flushed", fflush(both));
    result("number", fileno_unlocked(both) == fd);
    fgets(line, sizeof line, both);
    say("third %s, error %d", line, ferror(both));
    result("fclose", fclose(both));
}

static void client(void) {
    int fd = dial();
    char answer[16] = "";
    write_all(fd, "one\ntwo\n", 8);
    read_all(fd, answer, 7);
    say("%s", answer);
    write_all(fd, "three\n", 6);
    say("the end %zd", read(fd, answer, 1));
}
