/* pair: sendfile on a connection that several processes hold does not block once one of them has said
 * so, and blocks again when one says that; a connection that was passed over a Unix socket, too. */
#include "contract.h"
#include <sys/sendfile.h>

#define LENGTH (24 << 20)

static int file;

static void large_file(void) {
    char name[] = "/tmp/bypass-contract-XXXXXX";
    file = mkstemp(name);
    need(file >= 0 && unlink(name) == 0 && ftruncate(file, LENGTH) == 0, "a file");
}

static void set_flags_in_child(int fd, int flags) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        fcntl(fd, F_SETFL, flags);
        _exit(0);
    }
    waitpid(child, &status, 0);
}

/* Until nothing more is taken. */
static void send_what_goes(const char *name, int fd, off_t *start) {
    ssize_t put;
    while ((put = sendfile(fd, file, start, LENGTH - *start)) > 0)
        ;
    result(name, put);
    say("some %d, all %d", *start > 0, *start == LENGTH);
}

static void server(void) {
    int listening = listener(4), fd = accept(listening, NULL, NULL), pair[2];
    off_t start = 0;
    large_file();
    set_flags_in_child(fd, O_RDWR | O_NONBLOCK);
    send_what_goes("a child has set O_NONBLOCK", fd, &start);
    set_flags_in_child(fd, O_RDWR);
    tell(0);
    ssize_t put = sendfile(fd, file, &start, LENGTH - start);
    say("it blocks again until all is sent: %d %d", put > 0, start == LENGTH);
    close(fd);
    fd = accept(listening, NULL, NULL);
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    int status;
    if (child == 0) {
        int passed;
        close(fd);
        take(pair[1], &passed, 1);
        set_nonblocking(passed);
        start = 0;
        send_what_goes("passed", passed, &start);
        fflush(stdout);
        _exit(0);
    }
    hand(pair[0], &fd, 1);
    close(fd);
    waitpid(child, &status, 0);
    tell(0);
}

static long read_to_end(int fd) {
    static char bytes[65536];
    long sum = 0;
    ssize_t got;
    while ((got = read(fd, bytes, sizeof bytes)) > 0)
        sum += got;
    return sum;
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    hear();
    say("read all %d", read_to_end(fd) == LENGTH);
    fd = dial_port(port);
    hear();
    long sum = read_to_end(fd);
    say("read some %d, all %d", sum > 0, sum == LENGTH);
}
