/* pair: more connections live at once than one client's memory has places for processes, and the server gives each to a
 * program that it starts by posix_spawn; no program ends before each of them has its answer. First all wait before the
 * server accepts any, then each is accepted as it comes. */
#include <spawn.h>
#include "contract.h"

#define CONNECTIONS 60

extern char **environ;

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

static void burst(int all_wait) {
    int listening = listener(128), good = 0;
    if (all_wait)
        hear();
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        need(fd >= 0, "accept");
        spawn_for(fd);
        close(fd);
    }
    for (int i = 0; i < CONNECTIONS; i++) {
        int status;
        need(wait(&status) > 0, "wait");
        good += status == 0;
    }
    say("programs ended well %d", good);
    if (!all_wait)
        hear();
    close(listening);
}

static void server(void) {
    burst(1);
    burst(0);
}

static int answers(int port) {
    int fds[CONNECTIONS], answered = 0;
    for (int i = 0; i < CONNECTIONS; i++)
        fds[i] = dial_port(port);
    tell(0);
    for (int i = 0; i < CONNECTIONS; i++) {
        char letter = 'a' + i % 26, answer = 0;
        answered += send(fds[i], &letter, 1, MSG_NOSIGNAL) == 1 && read(fds[i], &answer, 1) == 1 &&
                    answer == letter;
    }
    for (int i = 0; i < CONNECTIONS; i++)
        close(fds[i]);
    return answered;
}

static void client(void) {
    for (int i = 0; i < 2; i++)
        say("answered %d", answers(hear()));
}
