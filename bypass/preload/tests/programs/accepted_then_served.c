/* pair: a server accepts many connections of one client, and only then gives each to a process of its own: to a child
 * that it forks, which has them all, or to a program that it starts. No process ends before each client has its answer. */
#include <spawn.h>
#include "contract.h"

#define CONNECTIONS 50
#define PROGRAMS 200

extern char **environ;

enum way { BY_FORK, BY_PROGRAM, WAYS };

static void fork_for(const int *fds, int own) {
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child > 0)
        return;
    for (int i = 0; i < CONNECTIONS; i++)
        if (fds[i] != own && fds[i] >= 0)
            close(fds[i]);
    char letter;
    while (read(own, &letter, 1) == 1)
        write_all(own, &letter, 1);
    _exit(0);
}

static void spawn_for(int fd) {
    char *words[] = {"cat", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    need(posix_spawn_file_actions_init(&actions) == 0, "actions");
    need(posix_spawn_file_actions_adddup2(&actions, fd, 0) == 0, "input");
    need(posix_spawn_file_actions_adddup2(&actions, fd, 1) == 0, "output");
    need(posix_spawn(&child, "/bin/cat", &actions, NULL, words, environ) == 0, "posix_spawn");
    posix_spawn_file_actions_destroy(&actions);
}

static int connections(enum way way) { return way == BY_FORK ? CONNECTIONS : PROGRAMS; }

static void serve(enum way way) {
    int listening = listener(PROGRAMS), fds[PROGRAMS];
    for (int i = 0; i < connections(way); i++) {
        fds[i] = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        need(fds[i] >= 0, "accept");
        tell(0);
    }
    for (int i = 0; i < connections(way); i++) {
        if (way == BY_FORK)
            fork_for(fds, fds[i]);
        else
            spawn_for(fds[i]);
        close(fds[i]);
        fds[i] = -1;
    }
    say_ended_well(connections(way));
    close(listening);
}

static void server(void) {
    for (int way = 0; way < WAYS; way++)
        serve(way);
}

static int answers(int port, int count) {
    int fds[PROGRAMS], answered = 0;
    for (int i = 0; i < count; i++) {
        fds[i] = dial_port(port);
        hear();
    }
    for (int i = 0; i < count; i++) {
        char letter = 'a' + i % 26, answer = 0;
        answered += send(fds[i], &letter, 1, MSG_NOSIGNAL) == 1 && read(fds[i], &answer, 1) == 1 &&
                    answer == letter;
    }
    for (int i = 0; i < count; i++)
        close(fds[i]);
    return answered;
}

static void client(void) {
    for (int way = 0; way < WAYS; way++)
        say("answered %d", answers(hear(), connections(way)));
}
