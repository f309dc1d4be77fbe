/* pair: a process passes a connection on, allows itself reads and writes but neither polls nor sleeps, and ends before the
 * connection is received: any other call would be its end. */
#include "contract.h"
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define ALLOW(number)                                                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),                                             \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter LITTLE[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_exit), ALLOW(SYS_exit_group), ALLOW(SYS_futex),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};

static void pass_and_end(int listening, int over) {
    struct sock_fprog program = {sizeof LITTLE / sizeof *LITTLE, LITTLE};
    int fd = accept(listening, NULL, NULL);
    hand(over, &fd, 1);
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "prctl");
    exit(0);
}

static void server(void) {
    int listening = listener(16), pair[2], status;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    if (child == 0)
        pass_and_end(listening, pair[1]);
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    close(pair[0]);
    close(pair[1]);
    meet();
}

static void client(void) {
    char byte;
    int fd = dial();
    result("the end", recv(fd, &byte, 1, 0));
    meet();
}
