/* pair: an acceptor is killed, and a client that connects then ends at once: the other acceptor gets the
 * connection and what was written. */
#include "starving.h"

#define ROUNDS 20
/* On a busy machine idle threads take seconds for what others wait for: then no more rounds begin after so long. */
#define BEGIN_S 30

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
    int listening = listener(4), works = 0, rounds = 0, goes_on = 1;
    for (double since = now_s(); goes_on; rounds++) {
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
        /* Of two connections that wait, one of the kernel's and one over packets, any may be accepted first. */
        goes_on = rounds + 1 < ROUNDS && now_s() - since < BEGIN_S;
        tell(goes_on);
    }
    say("in all rounds %d", works == rounds);
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
    do {
        pid_t child = fork();
        if (child == 0)
            client_of_a_round(port);
        reap(child);
    } while (hear());
}
