/* pair: a child that has inherited connections and then allows itself reads, writes and messages, but no
 * poll, as an FTP server's does: it waits in read, and uses connections that its parent makes later and passes
 * to it. Any other call is its end. So does a program that the child has become, and a child of the child. */
#include "contract.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define MESSAGES 40
#define ALLOW(number)                                                                              \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),                                             \
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static struct sock_filter LITTLE[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_recvfrom), ALLOW(SYS_recvmsg), ALLOW(SYS_sendmsg),
    ALLOW(SYS_close), ALLOW(SYS_exit), ALLOW(SYS_exit_group), ALLOW(SYS_brk), ALLOW(SYS_mmap),
    ALLOW(SYS_munmap), ALLOW(SYS_futex), ALLOW(SYS_clock_gettime), ALLOW(SYS_rt_sigprocmask),
    ALLOW(SYS_rt_sigreturn), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)};

static void child(int control, int over) {
    struct sock_fprog program = {sizeof LITTLE / sizeof *LITTLE, LITTLE};
    int answered = 0, data;
    char letter;
    say("confined"); /* and standard output is ready */
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "prctl");
    for (int i = 0; i < MESSAGES && read(control, &letter, 1) == 1; i++) {
        letter++;
        answered += write(control, &letter, 1) == 1;
    }
    say("answered %d", answered);
    /* From now on the parent makes what it is asked for. */
    need(write(over, "l", 1) == 1, "ask");
    for (int i = 0; i < 2; i++) {
        take(over, &data, 1);
        result("write", write(data, "data", 4));
        result("read", read(data, &letter, 1));
        result("close", close(data));
    }
    result("read of the end", read(control, &letter, 1));
    exit(7);
}

enum way { FORKED, EXECUTED, GRANDCHILD, WAYS };

__attribute__((constructor)) static void executed(void) {
    const char *numbers = getenv("CONTRACT_NUMBERS");
    int control, over;
    if (numbers && sscanf(numbers, "%d %d", &control, &over) == 2)
        child(control, over);
}

static void child_by(enum way way, int control, int over) {
    if (way == EXECUTED) {
        char numbers[32];
        snprintf(numbers, sizeof numbers, "%d %d", control, over);
        setenv("CONTRACT_NUMBERS", numbers, 1);
        execl("/proc/self/exe", "contract", "server", NULL);
        need(0, "exec");
    }
    if (way == GRANDCHILD) {
        int status;
        pid_t made = fork();
        if (made > 0) {
            close(control), close(over);
            need(waitpid(made, &status, 0) == made && WIFEXITED(status), "waitpid");
            _exit(WEXITSTATUS(status));
        }
    }
    child(control, over);
}

static void serve(enum way way) {
    int listening = listener(16), pair[2], status;
    int control = accept(listening, NULL, NULL);
    char byte;
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t made = fork();
    if (made == 0) {
        close(pair[0]); /* so that it ends when this process does */
        child_by(way, control, pair[1]);
    }
    close(pair[1]);
    need(read(pair[0], &byte, 1) == 1, "asked");
    /* The client comes to a listener that is made now, and is gone to, too. */
    int passive = listener(4);
    int data = accept(passive, NULL, NULL);
    hand(pair[0], &data, 1);
    close(data);
    data = dial();
    hand(pair[0], &data, 1);
    close(data);
    need(waitpid(made, &status, 0) == made, "waitpid");
    say("child status %d", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    close(control);
    close(pair[0]);
    close(passive);
    close(listening);
    hear();
}

/* Each in a process that no helper of another one shares a connection with. */
static void server(void) {
    for (enum way way = FORKED; way < WAYS; way++) {
        pid_t made = fork();
        if (made == 0) {
            serve(way);
            _exit(0);
        }
        need(made > 0 && waitpid(made, NULL, 0) == made, "waitpid");
    }
}

static void receive(int fd) {
    char text[5] = "";
    read_all(fd, text, 4);
    say("received %s", text);
    write_all(fd, "x", 1);
    result("end", read(fd, text, 1));
    close(fd);
}

static void ask(void) {
    int control = dial(), right = 0;
    for (int i = 0; i < MESSAGES; i++) {
        char letter = 'a' + i % 20, answer = 0;
        if (i % 10 == 0)
            usleep(20000);
        write_all(control, &letter, 1);
        read_all(control, &answer, 1);
        right += answer == letter + 1;
    }
    say("right answers %d", right);
    receive(dial());
    int active = listener(4);
    receive(accept(active, NULL, NULL));
    close(control);
    close(active);
    tell(0);
}

static void client(void) {
    for (enum way way = FORKED; way < WAYS; way++)
        ask();
}
