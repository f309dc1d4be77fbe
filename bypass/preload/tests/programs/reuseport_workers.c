/* pair: workers that inherit a listener each, and all others' too, are each found by clients of one connection. */
#include "contract.h"

#define WORKERS 12
#define CLIENTS 24

static int open_one(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    need(bind(fd, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    need(listen(fd, 64) == 0, "listen");
    return fd;
}

static void work(int listening, char number) {
    for (;;) {
        int fd = accept(listening, NULL, NULL);
        char letter;
        if (fd < 0 || read(fd, &letter, 1) != 1 || write(fd, &number, 1) != 1)
            _exit(1);
        close(fd);
    }
}

static void server(void) {
    int listening[WORKERS] = {open_one(0)};
    for (int i = 1; i < WORKERS; i++)
        listening[i] = open_one(port_of(listening[0]));
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        if ((workers[i] = fork()) == 0)
            work(listening[i], i);
    tell(port_of(listening[0]));
    meet();
    for (int i = 0; i < WORKERS; i++) {
        kill(workers[i], SIGKILL);
        waitpid(workers[i], NULL, 0);
    }
}

/* Each client is a process: what it knows of the workers is its own. */
static int ask(int port) {
    pid_t child = fork();
    if (child == 0) {
        int fd = dial_port(port);
        char number = -1;
        write_all(fd, "q", 1);
        read_all(fd, &number, 1);
        _exit(number);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void client(void) {
    int port = hear(), answers = 0, busy = 0, of[WORKERS] = {0};
    for (int i = 0; i < CLIENTS; i++) {
        int worker = ask(port);
        need(worker < WORKERS, "an answer");
        answers++;
        busy += of[worker]++ == 0;
    }
    say("answers %d, of more than three workers %d", answers, busy > 3);
    meet();
}
