/* pair: connections as the standard streams of another program, which uses stdio: what inetd and systemd start. */
#include "contract.h"

static void start(int fd, const char *command) {
    pid_t child = fork();
    if (child == 0) {
        dup2(fd, 0);
        dup2(fd, 1);
        if (fd > 2)
            close(fd);
        execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(9);
    }
    close(fd);
    int status;
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

static void server(void) {
    static const char *const commands[] = {
        "exec tr a-z A-Z",
        "exec sort",
        "read line; echo \"$line, twice\"; printf '%s\\n' \"$line\"",
        "exec od -An -c",
        "exec awk '{ print NR, $0 }'",
    };
    int listening = listener(16);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        start(accept(listening, NULL, NULL), commands[i]);
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < 5; i++) {
        char answer[4096] = "";
        size_t length = 0;
        ssize_t got;
        int fd = dial_port(port);
        write_all(fd, "second\nfirst\nthird\n", 19);
        shutdown(fd, SHUT_WR);
        while ((got = read(fd, answer + length, sizeof answer - 1 - length)) > 0)
            length += got;
        say("%s, then %s", answer, got ? strerrorname_np(errno) : "the end");
        close(fd);
    }
}
