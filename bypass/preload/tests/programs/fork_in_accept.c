/* pair: a handler that interrupts accept makes a child. Each of the two processes is woken when it is the one that goes on to
 * accept, whatever the other one does with its call. */
#include "contract.h"

static volatile pid_t child;
static int listening, until[2];

static void make_child(int number) {
    (void)number;
    child = fork();
}

/* Child and parent go on with the call one after the other; the client comes when the one that does waits. */
static void child_first(int number) {
    int status = 0;
    make_child(number);
    if (child > 0)
        waitpid(child, &status, 0);
    tell(getpid());
}

/* The child's call ends when its parent waits in the next one. */
static void parent_first(int number) {
    pid_t parent = getpid();
    make_child(number);
    if (child == 0)
        until_it_waits(&parent);
}

static void *send_signal(void *waiter) {
    pid_t process = getpid();
    until_it_waits(&process);
    pthread_kill((pthread_t)waiter, SIGUSR1);
    return NULL;
}

static int accept_under_signal(void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    pthread_t thread;
    sigaction(SIGUSR1, &action, NULL);
    need(pthread_create(&thread, NULL, send_signal, (void *)pthread_self()) == 0, "thread");
    pthread_detach(thread);
    return accept(listening, NULL, NULL);
}

static void both_go_on(void) {
    int fd = accept_under_signal(child_first, SA_RESTART);
    outcome(child ? "the parent accepts" : "the child accepts", fd);
    write_all(fd, child ? "p" : "c", 1);
    if (child == 0)
        exit(0);
}

static void parent_goes_on(void) {
    char byte;
    int status;
    need(pipe(until) == 0, "pipe");
    int fd = accept_under_signal(parent_first, 0);
    if (child == 0) {
        tell(getppid());
        close(until[1]);
        read(until[0], &byte, 1);
        exit(0);
    }
    need(fd == -1 && errno == EINTR, "interrupted");
    fd = accept(listening, NULL, NULL);
    outcome("the parent accepts again", fd);
    write_all(fd, "p", 1);
    close(until[1]);
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("status %d", status);
}

static void server(void) {
    listening = listener(16);
    both_go_on();
    parent_goes_on();
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < 3; i++) {
        char letter = '-';
        pid_t waiting = hear();
        until_it_waits(&waiting);
        int fd = dial_port(port);
        wait_for(fd, POLLIN);
        read(fd, &letter, 1);
        say("served by %c", letter);
    }
}
