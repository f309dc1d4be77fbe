/* pair: a server accepts, forbids itself Unix sockets as RestrictAddressFamilies= of systemd does, and starts a program
 * that waits for the connection in an epoll set. */
#include "contract.h"
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static struct sock_filter NO_UNIX[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};

static void successor(int fd) {
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    if (result("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event)) != 0)
        exit(1);
    result("epoll_wait", epoll_wait(set, &event, 1, LONG_MS));
    char letter = 0;
    result("read", read(fd, &letter, 1));
    letter++;
    result("write", write(fd, &letter, 1));
    exit(0);
}

static void server(void) {
    const char *inherited = getenv("CONTRACT_INHERITED");
    if (inherited)
        successor(atoi(inherited));
    int fd = serve_one();
    char number[12];
    snprintf(number, sizeof number, "%d", fd);
    setenv("CONTRACT_INHERITED", number, 1);
    struct sock_fprog program = {sizeof NO_UNIX / sizeof *NO_UNIX, NO_UNIX};
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "prctl");
    execl("/proc/self/exe", "program", "server", NULL);
    need(0, "exec");
}

static void client(void) {
    int fd = dial();
    char letter = 'a';
    write_all(fd, &letter, 1);
    result("answer", read(fd, &letter, 1));
    say("%c", letter);
}
