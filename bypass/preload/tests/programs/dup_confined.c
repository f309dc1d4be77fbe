/* solo: calls that take numbers work in a process that may not ask for its thread's number, and has no socket. */
#define SOLO
#include "contract.h"
#include <dlfcn.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* As a filter that was there before the program: the library does not see it come. */
static void confine(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_gettid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    long (*enter)(long, ...) = dlsym(dlopen("libc.so.6", RTLD_NOW), "syscall");
    need(enter(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    need(enter(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, "seccomp");
}

static void solo(void) {
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
        int pair[2];
        confine();
        int worked = dup(1) >= 0 && dup2(1, 20) == 20 && fcntl(1, F_DUPFD, 30) >= 30;
        worked += pipe(pair) == 0 && open("/dev/null", O_RDONLY) >= 0 && close(20) == 0;
        _exit(worked);
    }
    int status;
    need(waitpid(child, &status, 0) == child, "waitpid");
    if (WIFSIGNALED(status))
        say("ended by SIG%s", sigabbrev_np(WTERMSIG(status)));
    else
        say("%d of 2 worked", WEXITSTATUS(status));
}
