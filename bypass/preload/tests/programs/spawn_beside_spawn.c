/* pair: a thread starts programs for connections, another starts programs that live longer: these keep none open. */
#include "contract.h"
#include <spawn.h>

enum { CONNECTIONS = 8, OTHERS_MAX = 400 };

extern char **environ;

/* The others live until it is closed. */
static int life[2];
static pid_t others[OTHERS_MAX];
static int started;
static volatile int is_over;

static void *start_others(void *unused) {
    char *words[] = {"cat", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, life[0], 0);
    while (!is_over && started < OTHERS_MAX)
        if (posix_spawnp(&others[started], "cat", &actions, NULL, words, environ) == 0)
            started++;
    posix_spawn_file_actions_destroy(&actions);
    return unused;
}

static void answer(int fd) {
    char *words[] = {"sh", "-c", "read line; echo \"got $line\"", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    posix_spawn_file_actions_adddup2(&actions, fd, 1);
    need(posix_spawn(&child, "/bin/sh", &actions, NULL, words, environ) == 0, "posix_spawn");
    posix_spawn_file_actions_destroy(&actions);
    close(fd);
    need(waitpid(child, NULL, 0) == child, "waitpid");
}

static void server(void) {
    int listening = listener(16), status;
    pthread_t thread;
    set_int(listening, SOL_SOCKET, SO_REUSEADDR, 1);
    fcntl(listening, F_SETFD, FD_CLOEXEC);
    need(pipe2(life, O_CLOEXEC) == 0, "pipe");
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        need(fd >= 0, "accept");
        is_over = 0;
        need(pthread_create(&thread, NULL, start_others, NULL) == 0, "thread");
        answer(fd);
        is_over = 1;
        pthread_join(thread, NULL);
    }
    meet();
    close(life[1]);
    for (int i = 0; i < started; i++)
        waitpid(others[i], &status, 0);
}

static void client(void) {
    int port = hear(), late = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = dial_port(port);
        char text[64];
        struct pollfd one = {.fd = fd, .events = POLLIN};
        write_all(fd, "x\n", 2);
        /* One that is late is enough. */
        while (poll(&one, 1, late ? 0 : LONG_MS) == 1 && read(fd, text, sizeof text) > 0)
            ;
        late |= !(one.revents & POLLIN);
        close(fd);
    }
    say("an end is late: %d", late);
    meet();
}
