/* solo: stdio goes where the standard numbers do, when sockets have got these because they were free. */
#define SOLO
#include "contract.h"

static char line[32];

static const char *read_line(void) { return fgets(line, sizeof line, stdin) ? line : "nothing\n"; }

/* Standard input is the accepted one. */
static void accepted(int listening, int port) {
    int near = dial_port(port);
    close(STDIN_FILENO);
    int far = accept(listening, NULL, NULL);
    write_all(near, "first\nsecond\n", 13);
    say("accepted as %d: %s", far, read_line());
    close(near);
    say("then %s", read_line());
    say("then %s", read_line());
    close(far);
    clearerr(stdin);
}

/* Standard input is the connecting one, and the library's stream for the former goes on. */
static void connecting(int listening, int port) {
    int near = dial_port(port), far = accept(listening, NULL, NULL);
    say("connected as %d", near);
    write_all(far, "third\n", 6);
    say("got %s", read_line());
    close(near);
    close(far);
    int file = open("/dev/null", O_RDONLY);
    say("a file has %d: %s", file, read_line());
    clearerr(stdin);
}

/* Standard output is the accepted one. */
static void written(int listening, int port) {
    int near = dial_port(port), output = dup(1);
    close(STDOUT_FILENO);
    int far = accept(listening, NULL, NULL);
    printf("to number %d", far);
    int flushed = fflush(stdout);
    dup2(output, STDOUT_FILENO);
    memset(line, 0, sizeof line);
    size_t length = 0;
    ssize_t got;
    while ((got = read(near, line + length, sizeof line - 1 - length)) > 0)
        length += got;
    say("flushed %d, the other side got: %s, then %zd", flushed, line, got);
    close(near);
}

static void solo(void) {
    int listening = listener_on("127.0.0.1", 16), port = port_of(listening);
    accepted(listening, port);
    connecting(listening, port);
    written(listening, port);
}
