/* pair: a connection over every form of exec and over posix_spawn, also under another number. */
#include "contract.h"
#include <spawn.h>
#include <sys/syscall.h>

/* Forms of exec, and after them two of posix_spawn: the last one under another number. */
#define FORMS 12
#define SPAWN (FORMS - 2)
#define MOVED (FORMS - 1)

extern char **environ;

/* The second image is this program again: it writes its word to the number that it is given. */
__attribute__((constructor)) static void second_image(void) {
    const char *word = getenv("CONTRACT_WORD"), *number = getenv("CONTRACT_NUMBER");
    if (!word)
        return;
    int fd = atoi(number);
    char answer[8] = "";
    struct stat state;
    say("%s: a socket %d", word, fstat(fd, &state) == 0 && S_ISSOCK(state.st_mode));
    result("write", send(fd, word, strlen(word), MSG_NOSIGNAL));
    result("read", recv(fd, answer, 4, MSG_WAITALL));
    say("read %s", answer);
    exit(0);
}

static char *arguments[] = {"contract", "server", NULL};

static void become(int form) {
    switch (form) {
    case 0: execl("/proc/self/exe", "contract", "server", NULL); break;
    case 1: execlp("/proc/self/exe", "contract", "server", NULL); break;
    case 2: execle("/proc/self/exe", "contract", "server", NULL, environ); break;
    case 3: execv("/proc/self/exe", arguments); break;
    case 4: execvp("/proc/self/exe", arguments); break;
    case 5: execve("/proc/self/exe", arguments, environ); break;
    case 6: execvpe("/proc/self/exe", arguments, environ); break;
    case 7: fexecve(open("/proc/self/exe", O_RDONLY), arguments, environ); break;
    case 8: execveat(AT_FDCWD, "/proc/self/exe", arguments, environ, 0); break;
    case 9: syscall(SYS_execve, "/proc/self/exe", arguments, environ); break;
    }
    _exit(9);
}

static void in_child(int form, int fd) {
    char number[16], word[16];
    int status;
    snprintf(number, sizeof number, "%d", fd);
    snprintf(word, sizeof word, "form%c", 'a' + form);
    setenv("CONTRACT_NUMBER", form == MOVED ? "7" : number, 1);
    setenv("CONTRACT_WORD", word, 1);
    pid_t child = -1;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (form == MOVED)
        posix_spawn_file_actions_adddup2(&actions, fd, 7);
    if (form >= SPAWN)
        need(posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ) == 0, "spawn");
    else if ((child = fork()) == 0)
        become(form);
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("ended %d", status);
}

static void server(void) {
    int listening = listener(16);
    for (int form = 0; form < FORMS; form++) {
        int fd = accept(listening, NULL, NULL);
        in_child(form, fd);
        result("still ours", send(fd, "parent", 6, MSG_NOSIGNAL));
        close(fd);
    }
    unsetenv("CONTRACT_WORD");
    /* exec that fails leaves everything as it was. */
    int fd = accept(listening, NULL, NULL);
    result("exec of nothing", execl("/no/such/program", "x", NULL));
    result("after it", send(fd, "x", 1, MSG_NOSIGNAL));
    /* close-on-exec is kept: the child ends the connection for itself only. Without a listener, whose
       adoption in the new image could take the freed number for a moment. */
    close(listening);
    need(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0, "FD_CLOEXEC");
    in_child(0, fd);
    close(fd);
}

static void client(void) {
    int port = hear();
    for (int form = 0; form < FORMS; form++) {
        int fd = dial_port(port);
        char word[8] = "", rest[8] = "";
        result("read", recv(fd, word, 5, MSG_WAITALL));
        write_all(fd, "okay", 4);
        result("rest", recv(fd, rest, 6, MSG_WAITALL));
        say("%s %s", word, rest);
        result("the end", recv(fd, rest, 6, 0));
        close(fd);
    }
    int fd = dial_port(port);
    char byte;
    result("after a failed exec", recv(fd, &byte, 1, 0));
    result("the end", recv(fd, &byte, 1, 0));
}
