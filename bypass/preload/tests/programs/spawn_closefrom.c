/* pair: posix_spawn gives a connection to a program and closes everything else, as Python's subprocess does. */
#include "contract.h"
#include <spawn.h>

extern char **environ;

enum form { ONCE, TWICE, NOT_GIVEN, OPENED_AFTER, FORMS };

static const char *const commands[FORMS] = {
    "read line; echo \"got $line\"; read line; echo \"then $line\"",
    "read line; echo \"got $line\"; read line; echo \"then $line\"",
    "exit 5",
    "echo kept >&5",
};

/* Starts a shell; whether all the rest was closed is seen by a pipe. */
static void start(enum form form, int fd) {
    char *words[] = {"sh", "-c", (char *)commands[form], NULL};
    posix_spawn_file_actions_t actions;
    int ends[2], status;
    char byte;
    pid_t child;
    need(pipe(ends) == 0, "pipe");
    posix_spawn_file_actions_init(&actions);
    if (form <= TWICE) {
        posix_spawn_file_actions_adddup2(&actions, fd, 0);
        posix_spawn_file_actions_adddup2(&actions, fd, 1);
    }
    result("addclosefrom", posix_spawn_file_actions_addclosefrom_np(&actions, 3));
    if (form == OPENED_AFTER)
        result("addopen", posix_spawn_file_actions_addopen(&actions, 5, "/dev/null", O_RDWR, 0));
    result("posix_spawn", posix_spawn(&child, "/bin/sh", &actions, NULL, words, environ));
    if (form == TWICE) {
        need(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child, "kill");
        result("again", posix_spawn(&child, "/bin/sh", &actions, NULL, words, environ));
    }
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    result("only we had the pipe", read(ends[0], &byte, 1));
    close(ends[0]);
    if (form > TWICE)
        close(fd);
    tell(0);
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("ended %d", status);
    if (form <= TWICE)
        close(fd);
}

static void server(void) {
    int listening = listener(16);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    result("a bad number", posix_spawn_file_actions_addclosefrom_np(&actions, -1));
    posix_spawn_file_actions_destroy(&actions);
    for (int form = 0; form < FORMS; form++)
        start(form, accept4(listening, NULL, NULL, form % 2 ? 0 : SOCK_CLOEXEC));
}

static void client(void) {
    int port = hear();
    for (int form = 0; form < FORMS; form++) {
        int fd = dial_port(port);
        char answer[64] = "";
        size_t length = 0;
        ssize_t got;
        hear();
        if (form <= TWICE)
            write_all(fd, "line\nmore\n", 10);
        while ((got = read(fd, answer + length, sizeof answer - 1 - length)) > 0)
            length += got;
        say("%s and %s", answer, got ? strerrorname_np(errno) : "the end");
        close(fd);
    }
}
