/* pair: a client is killed at each beginning and end of its system calls, as often as it makes some: each time the next
 * client is answered, and nothing of the killed stays open. */
#include <dirent.h>
#include "stepping.h"

/* Hundreds are killed. */
#define FEW 64

static int count_open(void) {
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    need(all != NULL, "opendir");
    while (readdir(all))
        count++;
    closedir(all);
    return count;
}

static void server(void) {
    int listening = listener(64), before = count_open();
    while (answer_one(listening) != 'q')
        ;
    say("few are open besides %d", count_open() - before < FEW);
}

static void ask(int port) { need(is_answered(port, 'a'), "an answer"); }

/* By a process that has not connected before. */
static int is_answered_in_child(int port, char letter) {
    int status;
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0)
        _exit(!is_answered(port, letter));
    need(waitpid(child, &status, 0) == child, "waitpid");
    return status == 0;
}

static void client(void) {
    int port = hear(), boundary = 0, unanswered = 0, was_killed;
    do {
        was_killed = kill_at(begin_traced(ask, port), ++boundary);
        unanswered += !is_answered_in_child(port, 'a');
    } while (was_killed && boundary < BOUNDARIES_MAX);
    say("the last one was killed %d, of the others %d were not answered", was_killed, unanswered);
    say("the end is answered %d", is_answered_in_child(port, 'q'));
}
