/* pair: an acceptor ends while a connection waits, of a client that has ended before: an acceptor that came last gets
 * it, although its request for clients lies unread at the first. */
#include "starving.h"

#define ROUNDS 5

static int is_waiting_soon(const int *go, pid_t child) {
    struct timespec since, now;
    char path[32], state;
    snprintf(path, sizeof path, "/proc/%d/stat", child);
    need(write(go[1], "g", 1) == 1, "write");
    clock_gettime(CLOCK_MONOTONIC, &since);
    /* Without a pause of our own: other threads of this process must get no turn. */
    for (int looks = 0; looks < 2000;) {
        FILE *stat = fopen(path, "r");
        int is_read = stat && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1;
        if (stat)
            fclose(stat);
        looks = is_read && state == 'S' ? looks + 1 : 0;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - since.tv_sec > LONG_S)
            return 0;
    }
    return 1;
}

static void first_acceptor(int listening, int is_killed, const int *go, pid_t last) {
    accept(listening, NULL, NULL);
    schedule_others(SCHED_IDLE);
    need(is_waiting_soon(go, last), "the other acceptor waits");
    tell(0);
    hear_spinning();
    kill(getpid(), is_killed ? SIGKILL : 0);
    _exit(0);
}

static void last_acceptor(int listening, const int *go) {
    char buffer[8] = "";
    go_anywhere();
    read_all(go[0], buffer, 1);
    int fd = accept(listening, NULL, NULL);
    _exit(read(fd, buffer, sizeof buffer) == 4 && memcmp(buffer, "left", 4) == 0);
}

static int round_of_server(int is_killed) {
    int listening = listener(4), go[2], status = 0;
    need(pipe(go) == 0, "pipe");
    pid_t last = fork();
    if (last == 0)
        last_acceptor(listening, go);
    pid_t first = fork();
    if (first == 0)
        first_acceptor(listening, is_killed, go, last);
    close(listening);
    waitpid(first, NULL, 0);
    waitpid(last, &status, 0);
    close(go[0]);
    close(go[1]);
    tell(0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

static void server(void) {
    int after_exit = 0, after_kill = 0;
    for (int round = 0; round < ROUNDS; round++) {
        after_exit += round_of_server(0);
        after_kill += round_of_server(1);
    }
    say("left by one that exits %d, by one that is killed %d", after_exit, after_kill);
}

/* Where the acceptor is killed it can do nothing more, and this process can; and the other way round. */
static void round_of_client(int exits) {
    int port = hear();
    pid_t child = fork();
    if (child == 0) {
        go_anywhere();
        dial_port(port);
        hear();
        write_all(dial_port(port), "left", 4);
        if (exits)
            _exit(0);
        kill(getpid(), SIGKILL);
    }
    waitpid(child, NULL, 0);
    tell(0);
    hear();
}

static void client(void) {
    for (int round = 0; round < ROUNDS; round++) {
        round_of_client(0);
        round_of_client(1);
    }
}
