/* pair: epoll where the kernel knows no epoll_pwait2, as before Linux 5.11: a filter from before the
 * program's start answers ENOSYS. */
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include "contract.h"

static void become_old(const char *role) {
    if (getenv("CONTRACT_OLD_KERNEL"))
        return;
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_epoll_pwait2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0x00050000 | ENOSYS), /* SECCOMP_RET_ERRNO */
        BPF_STMT(BPF_RET | BPF_K, 0x7fff0000),          /* SECCOMP_RET_ALLOW */
    };
    struct sock_fprog filter = {sizeof lines / sizeof *lines, lines};
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS");
    need(prctl(PR_SET_SECCOMP, 2, &filter, 0, 0) == 0, "PR_SET_SECCOMP");
    setenv("CONTRACT_OLD_KERNEL", "1", 1);
    execl("/proc/self/exe", program_invocation_name, role, NULL);
    need(0, "execl");
}

static void say_wait(const char *name, int set, int timeout_ms) {
    struct epoll_event event = {0};
    double before = now_s();
    result(name, epoll_wait(set, &event, 1, timeout_ms));
    say("not too early %d", (now_s() - before) * 1000 >= timeout_ms);
}

static void server(void) {
    become_old("server");
    int listening = listener(16), set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening};
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "add");
    need(epoll_wait(set, &event, 1, -1) == 1, "a client");
    int fd = accept(listening, NULL, NULL);
    event.data.fd = fd;
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "add");
    say_wait("nothing now", set, 0);
    say_wait("nothing for 1 ms", set, 1);
    say_wait("nothing for 30 ms", set, 30);
    sigset_t mask;
    sigemptyset(&mask);
    result("epoll_pwait", epoll_pwait(set, &event, 1, 20, &mask));
    tell(0);
    char letter;
    for (int i = 0; i < 200; i++) {
        need(epoll_wait(set, &event, 1, i % 2 ? -1 : LONG_MS) == 1, "bytes");
        read_all(fd, &letter, 1);
        write_all(fd, &letter, 1);
    }
    need(epoll_wait(set, &event, 1, -1) == 1, "the end");
    result("read", read(fd, &letter, 1));
}

static void client(void) {
    become_old("client");
    int fd = dial(), right = 0;
    hear();
    for (int i = 0; i < 200; i++) {
        char letter = 'a' + i % 26, answer = 0;
        if (i % 20 == 0)
            usleep(3000);
        write_all(fd, &letter, 1);
        wait_for(fd, POLLIN);
        read_all(fd, &answer, 1);
        right += letter == answer;
    }
    say("right %d", right);
}
