/* pair: connections with close-on-exec that the file actions of posix_spawn give to the new program. */
#include "contract.h"
#include <spawn.h>

extern char **environ;

static void start(int form, int fd) {
    char command[64];
    char *words[] = {"sh", "-c", command, NULL};
    strcpy(command, "read line; echo \"got $line\"");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    switch (form) {
    case 0:
    case 1:
        posix_spawn_file_actions_adddup2(&actions, fd, 0);
        posix_spawn_file_actions_adddup2(&actions, fd, 1);
        break;
    case 2:
        posix_spawn_file_actions_adddup2(&actions, fd, fd);
        snprintf(command, sizeof command, "read line <&%d; echo \"its own $line\" >&%d", fd, fd);
        break;
    case 3:
        posix_spawn_file_actions_adddup2(&actions, fd, 0);
        posix_spawn_file_actions_adddup2(&actions, 0, 1);
        break;
    }
    pid_t child;
    int status;
    int error = form == 1 ? posix_spawnp(&child, "sh", &actions, NULL, words, environ)
                          : posix_spawn(&child, "/bin/sh", &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    need(error == 0 && waitpid(child, &status, 0) == child, "posix_spawn");
    say("ended %d, close-on-exec %d", status, fcntl(fd, F_GETFD));
}

static void server(void) {
    int listening = listener(16);
    for (int form = 0; form < 4; form++) {
        int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);
        start(form, fd);
        result("still ours", send(fd, "parent\n", 7, MSG_NOSIGNAL));
        close(fd);
    }
}

static void client(void) {
    int port = hear();
    for (int form = 0; form < 4; form++) {
        int fd = dial_port(port);
        char answer[64] = "";
        size_t length = 0;
        ssize_t got;
        write_all(fd, "line\n", 5);
        while ((got = read(fd, answer + length, sizeof answer - 1 - length)) > 0)
            length += got;
        say("%s then %s", answer, got ? strerrorname_np(errno) : "the end");
        close(fd);
    }
}
