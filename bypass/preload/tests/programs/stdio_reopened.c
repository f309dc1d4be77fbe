/* pair: streams of stdio over a connection that are opened again elsewhere or closed: the other end sees what was written,
 * and then the end, while the process goes on. */
#include "contract.h"
#include <spawn.h>

/* Where the program's own output goes while the standard streams lead elsewhere. */
static int output, listening, fd;
extern char **environ;

static void report(const char *what, long value) {
    if (value < 0)
        dprintf(output, "%s = -1 %s\n", what, strerrorname_np(errno));
    else
        dprintf(output, "%s = %ld\n", what, value);
}

/* What a number is now. */
static void report_number(int number) {
    struct stat state;
    int is_open = fstat(number, &state) == 0;
    report("is a socket", is_open && S_ISSOCK(state.st_mode));
    report("is a device", is_open && S_ISCHR(state.st_mode));
}

static void to_stdout(void) {
    dup2(fd, 1);
    close(fd);
    printf("written");
}

static void reopens_stdout(void) {
    to_stdout();
    report("reopened", freopen("/dev/null", "w", stdout) == stdout);
    report("number", fileno(stdout));
    report("printed", printf("to nowhere\n"));
    report("flushed", fflush(stdout));
    report_number(1);
}

static void reopens_missing(void) {
    to_stdout();
    report("flushed", fflush(stdout));
    report("reopened", freopen("/nowhere/at/all", "w", stdout) ? 1 : -1);
    report_number(1);
}

static void reopens_itself(void) {
    to_stdout();
    report("reopened", freopen(NULL, "w", stdout) ? 1 : -1);
    report_number(1);
}

static void closes_stdout(void) {
    to_stdout();
    report("closed", fclose(stdout));
    report_number(1);
}

static void closes_by_former_pointer(void) {
    FILE *former = stdout;
    to_stdout();
    report("closed", fclose(former));
    report_number(1);
}

static void reopens_by_former_pointer(void) {
    FILE *former = stdout;
    to_stdout();
    report("reopened", freopen("/dev/null", "w", former) == former);
    report("printed", fprintf(former, "to nowhere"));
    report("flushed", fflush(former));
    report_number(1);
}

static void goes_back(void) {
    int former = dup(1);
    to_stdout();
    fflush(stdout);
    report("reopened", freopen("/dev/null", "w", stdout) == stdout);
    printf("to nowhere");
    fflush(stdout);
    dup2(former, 1);
    printf("back again\n");
    fflush(stdout);
}

static void reopens_all(void) {
    char line[16] = "";
    for (int number = 0; number < 3; number++)
        dup2(fd, number);
    close(fd);
    fprintf(stderr, "ask ");
    report("read", fgets(line, sizeof line, stdin) && strcmp(line, "one\n") == 0);
    report("stdin", freopen("/dev/null", "r", stdin) == stdin);
    report("nothing", fgets(line, sizeof line, stdin) == NULL);
    printf("bye");
    report("stdout", freopen("/dev/null", "w", stdout) == stdout);
    report("stderr", freopen("/dev/null", "w", stderr) == stderr);
    report("unbuffered", fprintf(stderr, "lost"));
}

static void reopens_own_stream(void) {
    FILE *stream = fdopen(fd, "w");
    fprintf(stream, "by a stream");
    report("reopened", freopen("/dev/null", "w", stream) == stream);
    report("number", fileno(stream) == fd);
    report_number(fd);
    report("printed", fprintf(stream, "to nowhere"));
    report("closed", fclose(stream));
    report("number", fcntl(fd, F_GETFD));
}

static void reads_own_stream(void) {
    char line[16] = "";
    FILE *stream = fdopen(fd, "r");
    report("read", fgets(line, sizeof line, stream) && strcmp(line, "one\n") == 0);
    report("reopened", freopen("/dev/zero", "r", stream) == stream);
    report("letter", fgetc(stream));
    report("closed", fclose(stream));
}

static void writes_by_number(void) {
    dup2(fd, 1);
    report("dprintf", dprintf(fd, "%d and ", 1));
    report("dprintf", dprintf(1, "%d", 2));
    close(fd);
    report("closed", fclose(stdout));
}

static void spawns(void) {
    char *const words[] = {"sh", "-c", "read line; echo \"$line\"; echo three >&2", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status;
    posix_spawn_file_actions_init(&actions);
    for (int number = 0; number < 3; number++)
        posix_spawn_file_actions_adddup2(&actions, fd, number);
    posix_spawn_file_actions_addclose(&actions, fd);
    report("spawned", posix_spawn(&child, "/bin/sh", &actions, NULL, words, environ));
    posix_spawn_file_actions_destroy(&actions);
    close(fd);
    waitpid(child, &status, 0);
    report("status", status);
}

static void reopens_low_number(void) {
    report("number", fd);
    report("reopened", freopen("/dev/null", "r", stdin) == stdin);
    report_number(0);
}

static void closes_low_number(void) {
    report("number", fd);
    report("closed", fclose(stdin));
    report("number", open("/dev/null", O_RDONLY));
    report_number(0);
}

static void reads_after_writing(void) {
    char name[] = "/tmp/reopenedXXXXXX", line[16] = "";
    int file = mkstemp(name);
    FILE *stream = fdopen(fd, "w");
    fprintf(stream, "to the other");
    report("written", freopen(name, "a", stream) == stream);
    fprintf(stream, "first\nsecond\n");
    report("place", ftell(stream));
    report("read", freopen(name, "r", stream) == stream);
    report("not written", fputs("third", stream) == EOF);
    clearerr(stream);
    report("line", fgets(line, sizeof line, stream) && strcmp(line, "first\n") == 0);
    report("place", ftell(stream));
    rewind(stream);
    report("line", fgets(line, sizeof line, stream) && strcmp(line, "first\n") == 0);
    report("bad mode", freopen(name, "?", stream) ? 1 : -1);
    report("number", fileno(stream));
    unlink(name);
    close(file);
}

#define LOW_NUMBER 1
#define READS 2

static const struct {
    const char *name;
    void (*run)(void);
    int flags;
} ways[] = {
    {"stdout is opened again", reopens_stdout, 0},
    {"a file that is not there", reopens_missing, 0},
    {"stdout as itself", reopens_itself, 0},
    {"stdout is closed", closes_stdout, 0},
    {"stdout is closed by a pointer from before", closes_by_former_pointer, 0},
    {"stdout is opened again by a pointer from before", reopens_by_former_pointer, 0},
    {"and back again", goes_back, 0},
    {"all three", reopens_all, READS},
    {"a stream of its own", reopens_own_stream, 0},
    {"a stream that reads", reads_own_stream, READS},
    {"by number", writes_by_number, 0},
    {"spawned", spawns, READS},
    {"a stream whose mode changes", reads_after_writing, 0},
    {"a low number is opened again", reopens_low_number, LOW_NUMBER},
    {"a low number is closed", closes_low_number, LOW_NUMBER},
};

#define WAYS (sizeof ways / sizeof *ways)

static void server(void) {
    listening = listener(16);
    for (size_t i = 0; i < WAYS; i++) {
        int until[2], status;
        char byte;
        say("%s:", ways[i].name);
        need(pipe(until) == 0, "pipe");
        pid_t child = fork();
        if (child == 0) {
            close(until[1]);
            output = dup(1);
            if (ways[i].flags & LOW_NUMBER)
                close(0);
            fd = accept(listening, NULL, NULL);
            ways[i].run();
            read(until[0], &byte, 1);
            _exit(0);
        }
        close(until[0]);
        /* No client comes in between two that accept: between hosts the engine of the one that ends would have it. */
        until_it_waits(&child);
        tell(0);
        meet();
        close(until[1]);
        need(waitpid(child, &status, 0) == child, "waitpid");
        say("status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
}

static void client(void) {
    int port = hear();
    for (size_t i = 0; i < WAYS; i++) {
        char answer[256] = "";
        size_t length = 0;
        ssize_t got;
        hear();
        int to = dial_port(port);
        if (ways[i].flags & READS)
            write_all(to, "one\n", 4);
        do {
            wait_for(to, POLLIN);
            got = recv(to, answer + length, sizeof answer - 1 - length, 0);
            length += got > 0 ? got : 0;
        } while (got > 0);
        say("%s, then %s", answer, got ? strerrorname_np(errno) : "the end");
        meet();
        close(to);
    }
}
