/* pair: what was written arrives, whatever becomes of the writer: it shuts down, closes, exits, is killed or
 * becomes another program, before anybody reads. */
#include "contract.h"

#define MUCH 1000000
#define VERY_MUCH 10000000

static void write_stream(int fd, size_t length) {
    static unsigned char block[100000];
    for (size_t done = 0; done < length; done += sizeof block) {
        fill(block, sizeof block, done);
        write_all(fd, block, sizeof block);
    }
}

enum way { SHUT, CLOSE, EXIT, FAST_EXIT, KILL, EXEC, RETURN, WAYS };
static const char *const NAMES[] = {"shutdown", "close", "exit", "_exit", "SIGKILL", "exec", "abort"};

static void write_and_go(int fd, enum way way) {
    need(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0, "FD_CLOEXEC");
    write_stream(fd, MUCH);
    switch (way) {
    case SHUT:
        shutdown(fd, SHUT_WR);
        pause();
        break;
    case CLOSE:
        close(fd);
        pause();
        break;
    case EXIT:
        exit(0);
    case FAST_EXIT:
        _exit(0);
    case KILL:
        kill(getpid(), SIGKILL);
        break;
    case EXEC:
        execl("/bin/sleep", "sleep", "60", NULL);
        break;
    default:
        signal(SIGABRT, SIG_DFL);
        abort();
    }
}

static void server(void) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    int listening = listener(16);
    for (int way = 0; way < WAYS; way++) {
        int fd = accept(listening, NULL, NULL);
        pid_t child = fork();
        if (child == 0) {
            close(listening);
            alarm(LONG_S);
            write_and_go(fd, way);
            _exit(1);
        }
        close(fd);
        meet();
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    /* A request and its end, and an answer that is larger than any buffer. */
    int fd = accept(listening, NULL, NULL);
    char byte;
    result("request", recv(fd, &byte, 1, 0));
    result("its end", recv(fd, &byte, 1, 0));
    write_stream(fd, VERY_MUCH);
}

static void read_stream(const char *name, int fd) {
    static unsigned char block[70000], right[70000];
    size_t length = 0, wrong = 0;
    ssize_t got;
    while ((got = read(fd, block, sizeof block)) > 0) {
        fill(right, got, length);
        wrong += memcmp(block, right, got) != 0;
        length += got;
    }
    say("%s: %zu bytes, wrong %zu, then %s", name, length, wrong, got ? strerrorname_np(errno) : "the end");
}

static void client(void) {
    int port = hear();
    for (int way = 0; way < WAYS; way++) {
        int fd = dial_port(port);
        usleep(100000);
        read_stream(NAMES[way], fd);
        close(fd);
        meet();
    }
    int fd = dial_port(port);
    write_all(fd, "?", 1);
    shutdown(fd, SHUT_WR);
    usleep(200000);
    read_stream("half closed", fd);
}
