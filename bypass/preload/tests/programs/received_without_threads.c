/* pair: a child that may start no process or thread any more, as servers of files make them for a login,
 * takes connections that its parent passes to it. */
#include "contract.h"

static void child(int control, int over) {
    struct rlimit none = {0, 0};
    char letter;
    read_all(control, &letter, 1);
    /* Root's processes are not counted. */
    if (getuid() == 0)
        need(setgid(65534) == 0 && setuid(65534) == 0, "setuid");
    result("RLIMIT_NPROC", setrlimit(RLIMIT_NPROC, &none));
    result("fork", fork());
    write_all(control, &letter, 1);
    for (int i = 0; i < 3; i++) {
        int data;
        take(over, &data, 1);
        result("write", send(data, "data", 4, MSG_NOSIGNAL));
        result("read", recv(data, &letter, 1, 0));
        close(data);
    }
    result("the end of the first", read(control, &letter, 1));
    exit(0);
}

static void server(void) {
    int listening = listener(16), pair[2], status;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    int control = accept(listening, NULL, NULL);
    pid_t made = fork();
    if (made == 0) {
        close(pair[0]);
        close(listening);
        child(control, pair[1]);
    }
    close(pair[1]);
    close(control);
    for (int i = 0; i < 3; i++) {
        int data = accept(listening, NULL, NULL);
        hand(pair[0], &data, 1);
        close(data);
    }
    need(waitpid(made, &status, 0) == made, "waitpid");
    say("child status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
}

static void use(int port) {
    char word[8];
    int data = dial_port(port);
    result("data", recv(data, word, 4, MSG_WAITALL));
    result("answer", send(data, "x", 1, MSG_NOSIGNAL));
    result("end", recv(data, word, 1, 0));
    close(data);
}

static void client(void) {
    int port = hear(), control = dial_port(port);
    char word[8] = "l";
    write_all(control, word, 1);
    read_all(control, word, 1);
    use(port);
    use(port);
    /* From a process that the one without threads does not know. */
    pid_t other = fork();
    if (other == 0) {
        use(port);
        exit(0);
    }
    need(waitpid(other, NULL, 0) == other, "waitpid");
    close(control);
}
