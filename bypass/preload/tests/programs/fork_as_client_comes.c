/* pair: a server forks while its first client comes. The child accepts the client's connection and is killed:
 * the client is notified. The fork is made to last, where it waits for the process's other threads, by one that
 * connects to a listener whose process is stopped. */
#include "contract.h"

static void *connect_to(void *port) {
    close(dial_port(*(int *)port));
    return NULL;
}

static pid_t stopped_listener(int *port) {
    int ready[2];
    need(pipe(ready) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        int listening = listener_on("127.0.0.1", 16), own = port_of(listening);
        write_all(ready[1], &own, sizeof own);
        raise(SIGSTOP);
        _exit(0);
    }
    read_all(ready[0], port, sizeof *port);
    int status;
    need(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status), "stop");
    return child;
}

static void server(void) {
    int port, accepted[2];
    char letter = 'a';
    pid_t stopped = stopped_listener(&port);
    int listening = listener(16);
    pthread_t thread;
    need(pipe(accepted) == 0, "pipe");
    need(pthread_create(&thread, NULL, connect_to, &port) == 0, "thread");
    usleep(200000);
    tell(0);
    pid_t child = fork();
    if (child == 0) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        write_all(accepted[1], &letter, 1);
        for (;;)
            pause();
    }
    read_all(accepted[0], &letter, 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    pthread_join(thread, NULL);
    kill(stopped, SIGKILL);
    waitpid(stopped, NULL, 0);
    hear();
}

static void client(void) {
    int port = hear();
    char letter;
    hear();
    usleep(200000);
    int fd = dial_port(port);
    say_poll("killed", fd, POLLIN, LONG_MS);
    result("recv", recv(fd, &letter, 1, MSG_DONTWAIT));
    tell(0);
}
