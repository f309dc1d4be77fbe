/* pair: vfork, posix_spawn and system while connections are open; they stay open and whole. */
#include <spawn.h>
#include "contract.h"

extern char **environ;

static void server(void) {
    int fd = serve_one();
    char byte;
    for (int i = 0; i < 4; i++) {
        read_all(fd, &byte, 1);
        write_all(fd, &byte, 1);
    }
    result("end", read(fd, &byte, 1));
}

static void echo(int fd, char letter) {
    char answer;
    write_all(fd, &letter, 1);
    read_all(fd, &answer, 1);
    say("echo %d", answer == letter);
}

static void client(void) {
    int fd = dial(), status = -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    echo(fd, 'a');
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", NULL);
        _exit(9);
    }
    waitpid(child, &status, 0);
    say("vfork and exec %d", status);
    child = vfork();
    if (child == 0)
        _exit(7);
    waitpid(child, &status, 0);
    say("vfork and exit %d", WEXITSTATUS(status));
    echo(fd, 'b');
    char *words[] = {"sh", "-c", "exit 5", NULL};
    result("posix_spawn", posix_spawn(&child, "/bin/sh", NULL, NULL, words, environ));
    waitpid(child, &status, 0);
    say("posix_spawn %d", WEXITSTATUS(status));
    echo(fd, 'c');
    say("system %d", WEXITSTATUS(system("exit 6")));
    FILE *pipe = popen("echo from a shell", "r");
    char line[64] = "";
    say("popen %d %s", fgets(line, sizeof line, pipe) != NULL, line);
    pclose(pipe);
    echo(fd, 'd');
}
