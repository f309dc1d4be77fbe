/* pair: an acceptor is killed, and a client that connects then ends at once: the other acceptor gets the
 * connection and what was written. */
#include "contract.h"
#include <dirent.h>
#include <sched.h>

#define ROUNDS 20

/* Other threads of this process, if something has made any: with SCHED_IDLE they get no turn while this one
 * works. */
static void schedule_others_of(pid_t process, int policy) {
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    struct sched_param none = {0};
    char folder[32];
    snprintf(folder, sizeof folder, "/proc/%d/task", process);
    DIR *threads = opendir(folder);
    for (struct dirent *entry; threads && (entry = readdir(threads)) != NULL;) {
        pid_t thread = atoi(entry->d_name);
        if (thread == 0)
            continue;
        sched_setaffinity(thread, sizeof here, &here);
        if (thread != process)
            sched_setscheduler(thread, policy, &none);
    }
    if (threads)
        closedir(threads);
}

static void schedule_others(int policy) { schedule_others_of(getpid(), policy); }

static int has_left(pid_t child) {
    char path[32], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    FILE *stat = fopen(path, "r");
    int is_read = stat && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1;
    if (stat)
        fclose(stat);
    return is_read && state == 'Z';
}

/* A process that has ended is there until its last thread is, and to end a thread needs a turn, for which an
 * idle one waits for seconds on a busy machine. */
static void reap(pid_t child) {
    while (waitpid(child, NULL, WNOHANG) == 0) {
        if (has_left(child))
            schedule_others_of(child, SCHED_OTHER);
        usleep(1000);
    }
}

static void go_anywhere(void) {
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, &all);
}

static void hear_spinning(void) {
    int value;
    ssize_t got;
    while ((got = recv(CHANNEL, &value, sizeof value, MSG_DONTWAIT)) == -1 && errno == EAGAIN)
        ;
    need(got == sizeof value, "channel receive");
}

static pid_t accepting_child(int listening) {
    pid_t child = fork();
    if (child == 0) {
        go_anywhere();
        accept(listening, NULL, NULL);
        close(listening);
        tell(0);
        for (;;)
            pause();
    }
    return child;
}

static void server(void) {
    int listening = listener(4), works = 0;
    for (int round = 0; round < ROUNDS; round++) {
        char buffer[8] = "";
        schedule_others(SCHED_IDLE);
        pid_t child = accepting_child(listening);
        hear_spinning();
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        schedule_others(SCHED_OTHER);
        tell(0);
        int fd = accept(listening, NULL, NULL);
        works += read(fd, buffer, sizeof buffer) == 4 && memcmp(buffer, "left", 4) == 0;
        close(fd);
    }
    say("%d of %d", works, ROUNDS);
}

static void client_of_a_round(int port) {
    go_anywhere();
    dial_port(port);
    hear();
    schedule_others(SCHED_IDLE);
    tell(0);
    hear_spinning();
    write_all(dial_port(port), "left", 4);
    exit(0);
}

static void client(void) {
    int port = hear();
    for (int round = 0; round < ROUNDS; round++) {
        pid_t child = fork();
        if (child == 0)
            client_of_a_round(port);
        reap(child);
    }
}
