/* pair: clients that come while a worker is stopped, and while somebody fills the queue of the socket that other
 * processes find the worker by, are the worker's when it goes on: no other process accepts. */
#include "contract.h"

#include <dirent.h>
#include <stddef.h>

#define CALLS 5000

/* Answers one byte on each of so many connections. */
static void work(int listening, int count) {
    for (int i = 0; i < count; i++) {
        int fd = accept(listening, NULL, NULL);
        char byte;
        if (fd >= 0 && read(fd, &byte, 1) == 1)
            write_all(fd, &byte, 1);
        close(fd);
    }
    _exit(0);
}

static int is_of(pid_t process, const char *inode) {
    char folder[32], path[512], target[64], wanted[64];
    snprintf(folder, sizeof folder, "/proc/%d/fd", process);
    snprintf(wanted, sizeof wanted, "socket:[%s]", inode);
    DIR *all = opendir(folder);
    int found = 0;
    for (struct dirent *one; all && (one = readdir(all));) {
        snprintf(path, sizeof path, "%s/%s", folder, one->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = 0;
        found |= strcmp(target, wanted) == 0;
    }
    if (all)
        closedir(all);
    return found;
}

/* The name that the library gives a process among the abstract ones; false on the kernel, where it has none. */
static int find_name(pid_t process, char *name) {
    char line[256], inode[32];
    FILE *all = fopen("/proc/net/unix", "r");
    int found = 0;
    while (!found && all && fgets(line, sizeof line, all))
        found = sscanf(line, "%*s %*s %*s %*s %*s %*s %31s @%63s", inode, name) == 2 &&
                strncmp(name, "wirespeed/p/", 12) == 0 && is_of(process, inode);
    if (all)
        fclose(all);
    return found;
}

/* Connects to it until no more connections are let in; they go when this process lets go of them. */
static int call(const char *name, int *fds) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
    memcpy(address.sun_path + 1, name, strlen(name));
    for (int count = 0; count < CALLS; count++) {
        fds[count] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        need(fds[count] >= 0, "socket");
        if (connect(fds[count], (struct sockaddr *)&address, length) == -1)
            return count + 1;
    }
    return CALLS;
}

static void until_stopped(pid_t process) {
    need(kill(process, SIGSTOP) == 0, "stop");
    need(waitpid(process, NULL, WUNTRACED) == process, "until it is stopped");
}

static void server(void) {
    static int fds[CALLS];
    char name[64] = "";
    struct rlimit limit = {CALLS + 200, CALLS + 200};
    setrlimit(RLIMIT_NOFILE, &limit);
    int listening = listener(64);
    pid_t worker = fork();
    if (worker == 0)
        work(listening, 3);
    hear(); /* The worker has served one. */
    until_stopped(worker);
    int count = find_name(worker, name) ? call(name, fds) : 0;
    tell(0);
    hear(); /* Another client is there. */
    while (count-- > 0)
        close(fds[count]);
    need(kill(worker, SIGCONT) == 0, "go on");
    int status = 0;
    need(waitpid(worker, &status, 0) == worker, "waitpid");
    say("the worker is well: %d", status == 0);
}

static void ask(int port, const char *who) {
    int fd = dial_port(port);
    char byte = 'x', answer = 0;
    write_all(fd, &byte, 1);
    if (strcmp(who, "second") == 0)
        tell(0);
    wait_for(fd, POLLIN);
    say("%s: answer %d", who, read(fd, &answer, 1) == 1 && answer == 'x');
}

static void in_child(int port, const char *who) {
    pid_t child = fork();
    if (child == 0) {
        ask(port, who);
        _exit(0);
    }
    need(waitpid(child, NULL, 0) == child, "waitpid");
}

static void client(void) {
    int port = hear();
    in_child(port, "first");
    meet();
    in_child(port, "second");
    in_child(port, "third");
}
