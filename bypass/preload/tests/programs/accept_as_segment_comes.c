/* pair: a second acceptor begins, takes a connection from a client that the first one knows, and is killed at
 * once: the client is notified. The second one's other threads, if something has made any, are stopped as
 * soon as they connect to anybody, so that it comes to no end of what it does besides accepting. */
#include "contract.h"
#include <sys/ptrace.h>
#include <sys/syscall.h>

#define PATIENCE_S 0.5

static pid_t held;

static int is_readable(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, 1) == 1;
}

static int connects(pid_t thread) {
    struct __ptrace_syscall_info info;
    return ptrace(PTRACE_GET_SYSCALL_INFO, thread, (void *)sizeof info, &info) > 0 &&
           info.op == PTRACE_SYSCALL_INFO_ENTRY && info.entry.nr == SYS_connect;
}

/* Lets the traced threads run; the first one that connects is held. */
static void pump(pid_t main_thread) {
    int status;
    pid_t thread;
    while ((thread = waitpid(-1, &status, __WALL | WNOHANG)) > 0) {
        if (!WIFSTOPPED(status))
            continue;
        int signal = WSTOPSIG(status), is_call = signal == (SIGTRAP | 0x80);
        if (is_call && !held && connects(thread)) {
            held = thread;
            continue;
        }
        int is_own = is_call || status >> 16 != 0 || signal == SIGTRAP || signal == SIGSTOP;
        int how = thread == main_thread || held ? PTRACE_CONT : PTRACE_SYSCALL;
        ptrace(how, thread, NULL, (void *)(long)(is_own ? 0 : signal));
    }
}

/* Until there is word on fd, or a thread is held and stops counts, or for a while. */
static void pump_until(pid_t traced, int fd, int stops, double seconds) {
    double end = now_s() + seconds;
    while (now_s() < end && !is_readable(fd) && !(stops && held))
        pump(traced);
}

static pid_t acceptor(int listening, int begin, int accepted) {
    pid_t child = fork();
    if (child)
        return child;
    char letter;
    int fd;
    read_all(begin, &letter, 1);
    set_nonblocking(listening);
    while ((fd = accept(listening, NULL, NULL)) == -1)
        is_readable(listening);
    write_all(accepted, "a", 1);
    for (;;)
        pause();
}

static void server(void) {
    int listening = listener(16), begin[2][2], accepted[2];
    char letter;
    pid_t acceptors[2];
    need(pipe(accepted) == 0, "pipe");
    for (int i = 0; i < 2; i++) {
        need(pipe(begin[i]) == 0, "pipe");
        acceptors[i] = acceptor(listening, begin[i][0], accepted[1]);
    }
    close(listening);
    write_all(begin[0][1], "b", 1);
    read_all(accepted[0], &letter, 1);
    ptrace(PTRACE_SEIZE, acceptors[1], NULL, (void *)(PTRACE_O_TRACECLONE | PTRACE_O_TRACESYSGOOD));
    write_all(begin[1][1], "b", 1);
    pump_until(acceptors[1], accepted[0], 1, PATIENCE_S);
    tell(0);
    pump_until(acceptors[1], accepted[0], 0, PATIENCE_S);
    if (held && !is_readable(accepted[0]))
        ptrace(PTRACE_CONT, held, NULL, NULL);
    pump_until(acceptors[1], accepted[0], 0, LONG_S);
    read_all(accepted[0], &letter, 1);
    kill(acceptors[1], SIGKILL);
    double end = now_s() + LONG_S;
    while (kill(acceptors[1], 0) == 0 && now_s() < end)
        pump(acceptors[1]);
    tell(0);
    hear();
    kill(acceptors[0], SIGKILL);
    waitpid(acceptors[0], NULL, __WALL);
}

static void client(void) {
    int port = hear(), first = dial_port(port);
    char letter;
    hear();
    int second = dial_port(port);
    hear();
    say_poll("of the killed", second, POLLIN, LONG_MS);
    result("recv", recv(second, &letter, 1, MSG_DONTWAIT));
    say_poll("of the other", first, POLLIN, 0);
    tell(0);
}
