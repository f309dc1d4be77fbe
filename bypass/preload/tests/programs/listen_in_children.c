/* pair: a socket that is bound before fork, and listened on by each child, or by programs that the
 * children become: all of them accept, and who ends takes no client along. */
#include "contract.h"

#define WORKERS 2
#define CLIENTS 12
/* Numbers that are the same in all images. */
#define BOUND 20
#define READY 21

/* Each answers with its number, once for each connection. */
static void work(int listening, int number) {
    need(listen(listening, 64) == 0, "listen in a child");
    char ready = 'r';
    need(send(READY, &ready, 1, 0) == 1, "ready");
    for (;;) {
        char byte, answer = (char)('0' + number);
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        if (read(fd, &byte, 1) == 1)
            need(write(fd, &answer, 1) == 1, "answer");
        close(fd);
    }
}

/* The second image is this program again, with the numbers in the environment. */
__attribute__((constructor)) static void second_image(void) {
    const char *socket_text = getenv("CONTRACT_SOCKET"), *number = getenv("CONTRACT_NUMBER");
    if (socket_text)
        work(atoi(socket_text), atoi(number));
}

static pid_t worker(int bound, int number, int is_exec) {
    char text[16];
    pid_t child = fork();
    if (child != 0)
        return child;
    if (!is_exec)
        work(bound, number);
    snprintf(text, sizeof text, "%d", bound);
    setenv("CONTRACT_SOCKET", text, 1);
    snprintf(text, sizeof text, "%d", number);
    setenv("CONTRACT_NUMBER", text, 1);
    execl("/proc/self/exe", "contract", "server", NULL);
    _exit(9);
}

static void serve(int is_exec) {
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    int bound = socket(AF_INET, SOCK_STREAM, 0), ready[2];
    pid_t children[WORKERS];
    char byte;
    need(bind(bound, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, ready) == 0, "socketpair");
    need(dup2(bound, BOUND) == BOUND && dup2(ready[1], READY) == READY, "dup2");
    close(bound);
    close(ready[1]);
    for (int i = 0; i < WORKERS; i++) {
        children[i] = worker(BOUND, i, is_exec);
        need(recv(ready[0], &byte, 1, 0) == 1, "a worker");
    }
    tell(port_of(BOUND));
    for (int i = 0; i < WORKERS; i++) {
        hear();
        need(kill(children[i], SIGKILL) == 0 && waitpid(children[i], NULL, 0) > 0, "kill");
        if (i == 0) {
            children[0] = worker(BOUND, 7, is_exec);
            need(recv(ready[0], &byte, 1, 0) == 1, "a worker");
        }
        tell(0);
    }
    hear();
    kill(children[0], SIGKILL);
    waitpid(children[0], NULL, 0);
    close(BOUND);
    close(READY);
    close(ready[0]);
}

static void server(void) {
    serve(0);
    serve(1);
}

static void ask(const char *name, int port) {
    int answered = 0;
    for (int i = 0; i < CLIENTS; i++) {
        char byte = 'q';
        int fd = dial_port(port);
        write_all(fd, &byte, 1);
        answered += read(fd, &byte, 1) == 1;
        close(fd);
    }
    say("%s: %d of %d answered", name, answered, CLIENTS);
}

static void client(void) {
    for (int round = 0; round < 2; round++) {
        int port = hear();
        ask("two workers", port);
        tell(0);
        hear();
        ask("the first is another", port);
        tell(0);
        hear();
        ask("it is alone", port);
        tell(0);
    }
}
