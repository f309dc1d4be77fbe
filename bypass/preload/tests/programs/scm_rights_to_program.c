/* pair: a connection in a message that waits for a program which has not begun yet, and a second message for the
 * program's child; another process that should have received one is killed, and the sender goes on with its own. */
#include "contract.h"

#define CHANNEL_NAME "PROGRAMS_CHANNEL"

static void program(int over) {
    int fd;
    take(over, &fd, 1);
    result("the program writes", send(fd, "prog", 4, MSG_NOSIGNAL));
    close(fd);
    if (fork() == 0) {
        take(over, &fd, 1);
        result("its child writes", send(fd, "chil", 4, MSG_NOSIGNAL));
        _exit(0);
    }
    int status;
    wait(&status);
    say("its child has status %d", status);
    exit(0);
}

static void start_program(int over) {
    char number[16];
    int inherited = dup(over);
    snprintf(number, sizeof number, "%d", inherited);
    setenv(CHANNEL_NAME, number, 1);
    execl("/proc/self/exe", program_invocation_name, "server", NULL);
    need(0, "execl");
}

/* Passes a connection to a process that is killed before it looks. */
static void lose_receiver(int fd) {
    int pair[2], status;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    if (child == 0) {
        close(pair[0]);
        pause();
    }
    close(pair[1]);
    hand(pair[0], &fd, 1);
    kill(child, SIGKILL);
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("a receiver was killed by %d", WTERMSIG(status));
    close(pair[0]);
}

static void server(void) {
    if (getenv(CHANNEL_NAME))
        program(atoi(getenv(CHANNEL_NAME)));
    int listening = listener(16), pair[2], fds[3], status;
    for (int i = 0; i < 3; i++)
        fds[i] = accept(listening, NULL, NULL);
    need(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0, "socketpair");
    for (int i = 0; i < 2; i++) {
        hand(pair[0], &fds[i], 1);
        close(fds[i]);
    }
    pid_t child = fork();
    if (child == 0)
        start_program(pair[1]);
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("the program has status %d", status);
    lose_receiver(fds[2]);
    result("the sender writes", send(fds[2], "send", 4, MSG_NOSIGNAL));
    /* exit would wait for the one that is lost. */
    _exit(0);
}

static void client(void) {
    int port = hear(), fds[3];
    for (int i = 0; i < 3; i++)
        fds[i] = dial_port(port);
    for (int i = 0; i < 3; i++) {
        char text[8] = "";
        result("read", recv(fds[i], text, 4, MSG_WAITALL));
        say("%s", text);
        result("the end", recv(fds[i], text, 1, 0));
    }
}
