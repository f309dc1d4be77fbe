/* pair: a program that is started while another thread's shell runs has no part in what that shell has. */
#include "contract.h"
#include <spawn.h>

extern char **environ;

static int begun[2], over[2];

static void *run_shell(void *unused) {
    char command[96];
    snprintf(command, sizeof command, "echo x >/dev/fd/%d; read line </dev/fd/%d", begun[1], over[0]);
    result("the shell", system(command));
    return unused;
}

static pid_t start_other(int input) {
    char *words[] = {"cat", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, 0);
    need(posix_spawnp(&child, "cat", &actions, NULL, words, environ) == 0, "posix_spawn");
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

static void server(void) {
    int fd = serve_one(), life[2];
    char letter;
    pthread_t thread;
    need(pipe(begun) == 0 && pipe(over) == 0 && pipe2(life, O_CLOEXEC) == 0, "pipe");
    need(pthread_create(&thread, NULL, run_shell, NULL) == 0, "thread");
    need(read(begun[0], &letter, 1) == 1, "read");
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    pid_t other = start_other(life[0]);
    close(fd);
    write_all(over[1], "go\n", 3);
    pthread_join(thread, NULL);
    meet();
    close(life[1]);
    need(waitpid(other, NULL, 0) == other, "waitpid");
}

static void client(void) {
    int fd = dial();
    char byte;
    write_all(fd, "x", 1);
    say_poll("the end", fd, POLLIN | POLLRDHUP, LONG_MS);
    result("read", recv(fd, &byte, 1, MSG_DONTWAIT));
    meet();
}
