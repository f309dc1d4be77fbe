/* pair: sendfile of special files, its time-out, and a descriptor that another thread closes
 * and that means another connection while the call waits. */
#include "contract.h"
#include <sys/sendfile.h>

#define MIB (1 << 20)

static char block[MIB];

static int large_file(size_t length) {
    char name[] = "/tmp/bypass-contract-XXXXXX";
    int file = mkstemp(name);
    need(file >= 0 && unlink(name) == 0, "a file");
    for (size_t i = 0; i < sizeof block; i++)
        block[i] = (char)stream_byte(i);
    for (size_t done = 0; done < length; done += sizeof block)
        write_all(file, block, sizeof block);
    return file;
}

static void odd_files(int fd) {
    const char *names[] = {"/proc/self/cmdline", "/proc/self/environ", "/proc/self/maps", "/tmp",
                           "/dev/null"};
    for (int i = 0; i < 5; i++) {
        int file = open(names[i], O_RDONLY);
        need(file >= 0, names[i]);
        off_t start = 0;
        ssize_t put = sendfile(fd, file, &start, 100);
        say("%s: %s", names[i], put < 0 ? strerrorname_np(errno) : put > 0 ? "sent" : "nothing");
        say("  the offset %s", start == (put > 0 ? put : 0) ? "is right" : "is wrong");
        close(file);
    }
    int readable = open("/etc/passwd", O_RDONLY), named = open("/etc/passwd", O_PATH);
    need(readable >= 0 && named >= 0, "/etc/passwd");
    off_t start = 0;
    outcome("a file", sendfile(fd, readable, &start, 10));
    start = 0;
    outcome("the same by O_PATH", sendfile(fd, named, &start, 10));
    close(readable);
    close(named);
    int ends[2];
    need(pipe(ends) == 0 && write(ends[1], "pipe", 4) == 4, "pipe");
    result("a pipe", sendfile(fd, ends[0], NULL, 4));
    off_t before = -1;
    int file = large_file(MIB);
    result("a negative offset", sendfile(fd, file, &before, 4));
    off_t behind = 2 * MIB;
    result("behind the end", sendfile(fd, file, &behind, 4));
    close(file);
}

static void time_out(int fd) {
    struct timeval wait = {.tv_usec = 100000};
    need(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait) == 0, "SO_SNDTIMEO");
    int file = large_file(12 * MIB);
    off_t start = 0;
    ssize_t put = sendfile(fd, file, &start, 12 * MIB);
    say("until the time was over: some %d, all %d", put > 0, put == 12 * MIB);
    /* Bytes that the peer's host took in late may have made room once more. */
    while ((put = sendfile(fd, file, &start, 12 * MIB)) > 0)
        ;
    result("and none afterwards", put);
    tell(0);
    close(file);
}

static int sending, file_sent;
static volatile pid_t sender;
static ssize_t sent;

static void *send_all(void *nothing) {
    off_t start = 0;
    sender = gettid();
    sent = sendfile(sending, file_sent, &start, 12 * MIB);
    return nothing;
}

static void client(void) {
    int port = hear();
    int fd = dial_port(port);
    odd_files(fd);
    close(fd);
    fd = dial_port(port);
    time_out(fd);
    close(fd);
    sending = dial_port(port);
    file_sent = large_file(12 * MIB);
    int other = dial_port(port);
    pthread_t thread;
    need(pthread_create(&thread, NULL, send_all, NULL) == 0, "thread");
    meet();
    until_it_waits(&sender);
    need(dup2(other, sending) == sending, "dup2");
    need(write(sending, "other", 5) == 5, "write");
    close(other);
    close(sending);
    tell(0);
    pthread_join(thread, NULL);
    say("sent all %d", sent == 12 * MIB);
}

static long read_to_end(int fd, uint64_t *sum) {
    long total = 0;
    ssize_t got;
    while ((got = read(fd, block, sizeof block)) > 0) {
        *sum = checksum(*sum, (unsigned char *)block, got);
        total += got;
    }
    return total;
}

static void server(void) {
    int listening = listener(16);
    int fd = accept(listening, NULL, NULL);
    uint64_t sum = 0;
    read_to_end(fd, &sum);
    close(fd);
    fd = accept(listening, NULL, NULL);
    hear();
    read_to_end(fd, &sum);
    close(fd);
    int first = accept(listening, NULL, NULL), second = accept(listening, NULL, NULL);
    need(first >= 0 && second >= 0, "accept");
    meet();
    hear();
    sum = 0;
    long total = read_to_end(first, &sum);
    say("the first got %ld, checksum %lx", total, (unsigned long)sum);
    sum = 0;
    total = read_to_end(second, &sum);
    say("the second got %ld", total);
}
