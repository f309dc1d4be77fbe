/* solo: a program that is spawned opens a FIFO for its input; a fork, a command and streams do not wait for it. */
#define SOLO
#include "contract.h"
#include <spawn.h>
#include <sys/stat.h>

extern char **environ;

static char place[] = "/tmp/contract.XXXXXX", fifo[64];
static volatile pid_t announced;
static int error, status_of_reader;

static void *start_reader(void *unused) {
    char *words[] = {"cat", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    announced = gettid();
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, fifo, O_RDONLY, 0);
    error = posix_spawnp(&child, "cat", &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    need(error || waitpid(child, &status_of_reader, 0) == child, "waitpid");
    return unused;
}

static void *start_writer(void *unused) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        int fd = open(fifo, O_WRONLY);
        _exit(fd < 0);
    }
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("the writer ended %d", status);
    return unused;
}

static void *use_streams(void *unused) {
    FILE *file = fopen("/dev/null", "w"), *pipe = popen("exit 3", "r");
    need(file && pipe, "streams");
    say("closed %d, the command ended %d", fclose(file), pclose(pipe));
    return unused;
}

/* Whether it ends while the reader waits. */
static void run(const char *name, void *(*call)(void *)) {
    pthread_t thread;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LONG_MS / 1000;
    need(pthread_create(&thread, NULL, call, NULL) == 0, "thread");
    int late = pthread_timedjoin_np(thread, NULL, &until) != 0;
    say("%s waits: %d", name, late);
    if (late) {
        close(open(fifo, O_WRONLY));
        pthread_join(thread, NULL);
    }
}

static void solo(void) {
    pthread_t reader;
    /* The library has started. */
    close(listener_on("127.0.0.1", 1));
    need(mkdtemp(place) != NULL, "mkdtemp");
    snprintf(fifo, sizeof fifo, "%s/fifo", place);
    need(mkfifo(fifo, 0600) == 0, "mkfifo");
    need(pthread_create(&reader, NULL, start_reader, NULL) == 0, "thread");
    /* Until the child has called exec the kernel lets no signal but SIGKILL end its parent's wait. */
    for (int looks = 0; looks < 3; usleep(10000))
        looks = announced && thread_state(announced) == 'D' ? looks + 1 : 0;
    run("a stream", use_streams);
    run("a fork", start_writer);
    pthread_join(reader, NULL);
    say("posix_spawn %d, the reader ended %d", error, status_of_reader);
    unlink(fifo);
    rmdir(place);
}
