/* pair: a child that has inherited a connection and then allows itself little more than read, write
 * and poll, as servers of logins do; any other call is its end. */
#include "contract.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define MESSAGES 100
#define ALLOW(number)                                                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),                                             \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter LITTLE[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_writev), ALLOW(SYS_ppoll), ALLOW(SYS_pselect6),
    ALLOW(SYS_close), ALLOW(SYS_shutdown), ALLOW(SYS_exit), ALLOW(SYS_exit_group), ALLOW(SYS_brk),
    ALLOW(SYS_mmap), ALLOW(SYS_munmap), ALLOW(SYS_madvise), ALLOW(SYS_mremap), ALLOW(SYS_futex),
    ALLOW(SYS_getpid), ALLOW(SYS_getrandom), ALLOW(SYS_clock_gettime), ALLOW(SYS_rt_sigprocmask),
    ALLOW(SYS_rt_sigreturn), ALLOW(SYS_clock_nanosleep), ALLOW(SYS_epoll_pwait), ALLOW(SYS_epoll_ctl),
#ifdef SYS_poll
    ALLOW(SYS_poll), ALLOW(SYS_select), ALLOW(SYS_epoll_wait),
#endif
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};

static void confine(int by_number) {
    struct sock_fprog program = {sizeof LITTLE / sizeof *LITTLE, LITTLE};
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    if (by_number)
        need(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, "seccomp");
    else
        need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "prctl");
}

static void child(int fd, int way) {
    char letter;
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    /* Programs ask whether there are filters before they use them. */
    result("a filter that is none", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL));
    /* No more descriptors, nor more than one in a poll. */
    struct rlimit limit = {1, 1};
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    confine(way == 1);
    int answered = 0;
    for (int i = 0; i < MESSAGES; i++) {
        if (i % 3 == 1)
            need(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, LONG_MS) == 1, "poll");
        if (i % 3 == 2)
            need(epoll_wait(set, &event, 1, LONG_MS) == 1, "epoll_wait");
        if (read(fd, &letter, 1) != 1)
            break;
        letter++;
        answered += write(fd, &letter, 1) == 1;
    }
    say("answered %d", answered);
    result("read of the end", read(fd, &letter, 1));
    result("close", close(fd));
    exit(7);
}

static void server(void) {
    int listening = listener(16);
    for (int way = 0; way < 2; way++) {
        int fd = accept(listening, NULL, NULL), status;
        pid_t made = fork();
        if (made == 0)
            child(fd, way);
        need(waitpid(made, &status, 0) == made, "waitpid");
        say("child status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
        result("the parent writes", write(fd, "p", 1));
        close(fd);
    }
}

static void client(void) {
    int port = hear();
    for (int way = 0; way < 2; way++) {
        int fd = dial_port(port), right = 0;
        for (int i = 0; i < MESSAGES; i++) {
            char letter = 'a' + i % 20, answer = 0;
            if (i % 25 == 0)
                usleep(20000);
            write_all(fd, &letter, 1);
            if (i % 2)
                wait_for(fd, POLLIN);
            read_all(fd, &answer, 1);
            right += answer == letter + 1;
        }
        say("right answers %d", right);
        shutdown(fd, SHUT_WR);
        char byte;
        read_all(fd, &byte, 1);
        say("from the parent %c", byte);
        result("end", read(fd, &byte, 1));
        close(fd);
    }
}
