/* pair: stdio on a connection: fdopen, fprintf, fgets, fflush, dprintf, fclose. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    FILE *in = fdopen(fd, "r"), *out = fdopen(dup(fd), "w");
    say("fdopen %d %d, fileno %d", in != NULL, out != NULL, fileno(in) == fd);
    char line[64];
    while (fgets(line, sizeof line, in)) {
        line[strcspn(line, "\n")] = 0;
        fprintf(out, "got %s\n", line);
        result("fflush", fflush(out));
    }
    say("end %d error %d", feof(in) != 0, ferror(in));
    result("fclose", fclose(out));
    result("fclose", fclose(in));
    result("the number is closed", fcntl(fd, F_GETFD));
}

static void client(void) {
    int fd = dial();
    char line[64] = "";
    result("dprintf", dprintf(fd, "line %d\n", 1));
    FILE *both = fdopen(fd, "r+");
    need(both != NULL, "fdopen");
    say("fgets %s", fgets(line, sizeof line, both));
    fputs("second\n", both);
    fflush(both);
    say("fgets %s", fgets(line, sizeof line, both));
    shutdown(fd, SHUT_WR);
    say("at the end %d", fgets(line, sizeof line, both) == NULL);
    result("fclose", fclose(both));
}
