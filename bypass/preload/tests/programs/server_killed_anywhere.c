/* pair: a server's process is killed at each beginning and end of its system calls, as often as it makes some, while a
 * client connects that no process of the server knows: the next process of the server answers. */
#include "stepping.h"

static void answer(int listening) { answer_one(listening); }

static int ends_well(pid_t child) {
    int status;
    need(waitpid(child, &status, 0) == child, "waitpid");
    return status == 0;
}

static void server(void) {
    int listening = listener(64), boundary = 0, bad = 0, was_killed;
    do {
        pid_t child = begin_traced(answer, listening);
        tell(1);
        was_killed = kill_at(child, ++boundary);
        pid_t next = fork();
        need(next >= 0, "fork");
        if (next == 0) {
            while (answer_one(listening) != 'q')
                ;
            _exit(0);
        }
        bad += !ends_well(next);
        hear();
    } while (was_killed && boundary < BOUNDARIES_MAX);
    tell(0);
    say("the last one was killed %d, of the others %d ended badly", was_killed, bad);
}

static void client(void) {
    int port = hear(), unanswered = 0;
    while (hear()) {
        pid_t child = fork();
        need(child >= 0, "fork");
        if (child == 0) {
            /* Perhaps not, by the one that is killed. */
            is_answered(port, 'a');
            _exit(!is_answered(port, 'q'));
        }
        unanswered += !ends_well(child);
        tell(0);
    }
    say("not answered %d", unanswered);
}
