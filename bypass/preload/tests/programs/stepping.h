/* A child that is killed at one of its system calls. */
#ifndef STEPPING_H
#define STEPPING_H
#include "contract.h"
#include <sys/ptrace.h>

/* No program here makes so many. */
#define BOUNDARIES_MAX 4000

/* A child that is traced before it begins to work. */
UNUSED static pid_t begin_traced(void (*work)(int), int argument) {
    int begin[2];
    char byte = 'b';
    need(pipe(begin) == 0, "pipe");
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
        need(read(begin[0], &byte, 1) == 1, "pipe");
        close(begin[0]), close(begin[1]);
        work(argument);
        _exit(0);
    }
    long options = PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL;
    need(ptrace(PTRACE_SEIZE, child, NULL, (void *)options) == 0, "PTRACE_SEIZE");
    need(ptrace(PTRACE_INTERRUPT, child, NULL, NULL) == 0, "PTRACE_INTERRUPT");
    write_all(begin[1], &byte, 1);
    close(begin[0]), close(begin[1]);
    return child;
}

/* Waits for its end, and kills it when its threads have come to so many beginnings and ends of system calls. False when
 * it had ended before. There is no other child meanwhile. */
UNUSED static int kill_at(pid_t child, int boundary) {
    int reached = 0, status;
    pid_t thread;
    while ((thread = waitpid(-1, &status, __WALL)) > 0) {
        if (!WIFSTOPPED(status)) {
            if (thread == child)
                break;
            continue;
        }
        int number = WSTOPSIG(status), is_call = number == (SIGTRAP | 0x80);
        if (is_call && ++reached == boundary)
            kill(child, SIGKILL);
        int is_own = is_call || status >> 16 != 0;
        ptrace(PTRACE_SYSCALL, thread, NULL, (void *)(long)(is_own ? 0 : number));
    }
    return reached >= boundary;
}

/* Whether a request of one letter is answered on a new connection. It may be reset instead. */
UNUSED static int is_answered(int port, char letter) {
    char answer = 0;
    int fd = dial_port(port);
    int is_same = send(fd, &letter, 1, MSG_NOSIGNAL) == 1 && read(fd, &answer, 1) == 1 && answer == letter;
    close(fd);
    return is_same;
}

/* Answers one request; its letter, or 0 when it did not come. */
UNUSED static char answer_one(int listening) {
    char letter = 0;
    int fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    if (read(fd, &letter, 1) == 1)
        send(fd, &letter, 1, MSG_NOSIGNAL);
    close(fd);
    return letter;
}
#endif
