/* pair: SO_SNDTIMEO and SO_RCVTIMEO end every call that waits for room or for bytes. */
#include "contract.h"
#include <sys/sendfile.h>

#define LENGTH 65536

static char bytes[LENGTH];
static int fd, file, pipe_ends[2];

static ssize_t by_write(void) { return write(fd, bytes, LENGTH); }
static ssize_t by_send(void) { return send(fd, bytes, LENGTH, MSG_NOSIGNAL); }
static ssize_t by_writev(void) { return writev(fd, &(struct iovec){bytes, LENGTH}, 1); }
static ssize_t by_sendfile(void) {
    off_t offset = 0;
    return sendfile(fd, file, &offset, LENGTH);
}
static ssize_t by_splice(void) {
    need(write(pipe_ends[1], bytes, 4096) == 4096, "pipe");
    return splice(pipe_ends[0], NULL, fd, NULL, 4096, 0);
}
static ssize_t by_read(void) { return read(fd, bytes, 1); }
static ssize_t by_recvmsg(void) {
    struct iovec piece = {bytes, 1};
    return recvmsg(fd, &(struct msghdr){.msg_iov = &piece, .msg_iovlen = 1}, 0);
}
static ssize_t by_splicing_out(void) { return splice(fd, NULL, pipe_ends[1], NULL, 100, 0); }

/* As long as there is room it takes bytes. */
static void ends(const char *name, ssize_t (*call)(void)) {
    ssize_t moved;
    double since;
    do {
        since = now_s();
        moved = call();
    } while (moved > 0);
    result(name, moved);
    say("  after its time %d", now_s() - since > 0.02);
}

static void server(void) {
    FILE *stream = tmpfile();
    need(stream && ftruncate(fileno(stream), LENGTH) == 0 && pipe(pipe_ends) == 0, "files");
    file = fileno(stream);
    fd = serve_one();
    struct timeval soon = {0, 30000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &soon, sizeof soon);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
    ends("read", by_read);
    ends("recvmsg", by_recvmsg);
    ends("splice into a pipe", by_splicing_out);
    ends("write", by_write);
    ends("send", by_send);
    ends("writev", by_writev);
    ends("sendfile", by_sendfile);
    ends("splice", by_splice);
    meet();
}

static void client(void) {
    int peer = dial();
    meet();
    close(peer);
}
