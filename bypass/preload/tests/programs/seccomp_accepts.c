/* pair: a server that forbids itself new sockets goes on accepting at its listener, with one thread confined and with
 * connections that have waited since before. */
#include "contract.h"
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define WAITING 3
#define CONNECTIONS 60

static struct sock_filter NO_SOCKETS[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};

static void serve(int listening) {
    int fd = accept(listening, NULL, NULL);
    char letter;
    need(fd >= 0, "accept");
    while (read(fd, &letter, 1) == 1)
        write_all(fd, &letter, 1);
    close(fd);
}

static void server(void) {
    int listening = listener(64);
    struct sock_fprog program = {sizeof NO_SOCKETS / sizeof *NO_SOCKETS, NO_SOCKETS};
    serve(listening);
    meet();
    need(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
    need(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0, "prctl");
    tell(0);
    for (int i = 0; i < WAITING + CONNECTIONS; i++)
        serve(listening);
    say("all were served");
}

static int ask(int fd) {
    char answer = 0;
    write_all(fd, "x", 1);
    int right = read(fd, &answer, 1) == 1 && answer == 'x';
    close(fd);
    return right;
}

static void client(void) {
    int port = hear(), waiting[WAITING], right = ask(dial_port(port));
    for (int i = 0; i < WAITING; i++)
        waiting[i] = dial_port(port);
    meet();
    hear();
    for (int i = 0; i < WAITING; i++)
        right += ask(waiting[i]);
    for (int i = 0; i < CONNECTIONS; i++)
        right += ask(dial_port(port));
    say("right answers %d", right);
}
