/* Threads that get no turn: for contract programs about what a process leaves undone when it ends. */
#ifndef STARVING_H
#define STARVING_H
#include "contract.h"
#include <dirent.h>
#include <sched.h>

/* Other threads of this process, if something has made any: with SCHED_IDLE they get no turn while this one
 * works. */
UNUSED static void schedule_others_of(pid_t process, int policy) {
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

UNUSED static void schedule_others(int policy) { schedule_others_of(getpid(), policy); }

UNUSED static int has_left(pid_t child) {
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
UNUSED static void reap(pid_t child) {
    while (waitpid(child, NULL, WNOHANG) == 0) {
        if (has_left(child))
            schedule_others_of(child, SCHED_OTHER);
        usleep(1000);
    }
}

UNUSED static void go_anywhere(void) {
    cpu_set_t all;
    memset(&all, 0xff, sizeof all);
    sched_setaffinity(0, sizeof all, &all);
}

UNUSED static void hear_spinning(void) {
    int value;
    ssize_t got;
    while ((got = recv(CHANNEL, &value, sizeof value, MSG_DONTWAIT)) == -1 && errno == EAGAIN)
        ;
    need(got == sizeof value, "channel receive");
}
#endif
