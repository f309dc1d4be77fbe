/* pair: a forked child that has inherited a connection waits on it, then changes its user, which libc
 * does in all threads of the process and waits for; servers of logins do so. */
#include "contract.h"
#include <grp.h>

static void child(int fd) {
    char letter;
    wait_for(fd, POLLIN);
    /* Without rights, its own user is the only one it can become; the threads are asked all the same. */
    int is_root = getuid() == 0;
    result("setgroups", is_root ? setgroups(0, NULL) : 0);
    result("setgid", setgid(is_root ? 65534 : getgid()));
    result("setuid", setuid(is_root ? 65534 : getuid()));
    read_all(fd, &letter, 1);
    letter++;
    write_all(fd, &letter, 1);
    result("end", read(fd, &letter, 1));
    exit(0);
}

static void server(void) {
    int listening = listener(16);
    for (int i = 0; i < 3; i++) {
        int fd = accept(listening, NULL, NULL), status;
        need(fd >= 0, "accept");
        pid_t made = fork();
        if (made == 0) {
            alarm(LONG_S);
            child(fd);
        }
        close(fd);
        need(waitpid(made, &status, 0) == made, "waitpid");
        say("child status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < 3; i++) {
        int fd = dial_port(port);
        char letter = 'a' + i;
        write_all(fd, &letter, 1);
        read_all(fd, &letter, 1);
        say("answer %c", letter);
        close(fd);
    }
}
