/* pair: a server to which ten client processes are connected crashes, and so does a child that inherits the
 * connections: the core dumps are small. */
#include "memory.h"
#include <dirent.h>
#include <sys/prctl.h>

#define CLIENTS 10

/* Whether the machine's settings put core dumps in the working directory. */
static int are_dumps_here(void) {
    char pattern[256] = "";
    FILE *file = fopen("/proc/sys/kernel/core_pattern", "r");
    need(file != NULL && fgets(pattern, sizeof pattern, file), "core_pattern");
    fclose(file);
    return !strpbrk(pattern, "/|");
}

/* Ends with a core dump, but for one that would stay on the machine: of that only the flags are known. */
static void crash(void) {
    struct rlimit most;
    say("segments in a dump %d", mappings(NULL, " dd", 0));
    if (are_dumps_here()) {
        need(getrlimit(RLIMIT_CORE, &most) == 0, "getrlimit");
        most.rlim_cur = most.rlim_max;
        need(setrlimit(RLIMIT_CORE, &most) == 0, "setrlimit");
    } else {
        need(prctl(PR_SET_DUMPABLE, 0) == 0, "PR_SET_DUMPABLE");
    }
    abort();
}

/* The memory that dumps take on the disk, which are removed. */
static long taken_megabytes(const char *folder) {
    char path[512];
    long blocks = 0;
    DIR *all = opendir(folder);
    need(all != NULL, folder);
    for (struct dirent *one; (one = readdir(all));) {
        struct stat state;
        snprintf(path, sizeof path, "%s/%s", folder, one->d_name);
        if (stat(path, &state) == 0 && S_ISREG(state.st_mode)) {
            blocks += state.st_blocks;
            unlink(path);
        }
    }
    closedir(all);
    return blocks >> 11;
}

static void say_dump(pid_t child, const char *folder) {
    int status;
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("ended by SIGABRT: %d", WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    say("more than 64 MiB: %d", taken_megabytes(folder) > 64);
}

static void serve_and_crash(const char *folder) {
    char letter;
    int fds[CLIENTS], listening = listener(CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        need((fds[i] = accept(listening, NULL, NULL)) >= 0, "accept");
        read_all(fds[i], &letter, 1);
        write_all(fds[i], &letter, 1);
    }
    need(chdir(folder) == 0, "chdir");
    pid_t heir = fork();
    if (heir == 0)
        crash();
    say_dump(heir, folder);
    crash();
}

static void server(void) {
    char folder[] = "/tmp/core-dump-XXXXXX";
    need(mkdtemp(folder) != NULL, "mkdtemp");
    pid_t child = fork();
    if (child == 0)
        serve_and_crash(folder);
    say_dump(child, folder);
    rmdir(folder);
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < CLIENTS; i++) {
        if (fork() > 0)
            continue;
        int fd = dial_port(port);
        char letter = 'a';
        write_all(fd, &letter, 1);
        read_all(fd, &letter, 1);
        _exit(read(fd, &letter, 1) != 0);
    }
    say_ended_well(CLIENTS);
}
