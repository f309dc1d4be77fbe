/* pair: a program that calls libc by its second names, which are public since its first version. */
#include <sys/syscall.h>
#include "contract.h"

ssize_t __read(int fd, void *bytes, size_t count);
ssize_t __write(int fd, const void *bytes, size_t count);
ssize_t __send(int fd, const void *bytes, size_t count, int flags);
int __connect(int fd, const struct sockaddr *name, socklen_t length);
int __close(int fd);
int __dup2(int fd, int to);
int __fcntl(int fd, int command, ...);
int __poll(struct pollfd *entries, nfds_t count, int timeout);
int __sigaction(int number, const struct sigaction *new, struct sigaction *old);
pid_t __fork(void);
ssize_t __pread64(int fd, void *bytes, size_t count, off64_t offset);
ssize_t __pwrite64(int fd, const void *bytes, size_t count, off64_t offset);
int __select(int count, fd_set *read, fd_set *write, fd_set *except, struct timeval *time);

/* A child is served by the connection of its parent. */
static void write_from_child(int fd) {
    pid_t child = __fork();
    if (child == 0)
        _exit(write(fd, "born", 4) != 4);
    int status = -1;
    waitpid(child, &status, 0);
    say("child %d", status);
}

static volatile sig_atomic_t handled;
static void handler(int number) {
    (void)number;
    handled++;
}

/* The program gets its own handler when it asks, and gives it back. */
static void keep_handler(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, old;
    result("sigaction", __sigaction(SIGUSR1, &action, NULL));
    result("asked for", __sigaction(SIGUSR1, NULL, &old));
    say("  the program's %d, flags %x", old.sa_handler == handler, old.sa_flags & ~0x04000000);
    result("given back", sigaction(SIGUSR1, &old, NULL));
    raise(SIGUSR1);
    say("  handled %d", handled);
    result("again", sigaction(SIGUSR1, NULL, &old));
    say("  the program's %d", old.sa_handler == handler);
}

/* The kernel's own structure, by number: its handler goes to libc's. */
static void keep_handler_of_kernel(void) {
    struct { void *handler; unsigned long flags; void *restorer; unsigned long mask; } of_kernel = {0};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESETHAND | SA_NODEFER};
    handled = 0;
    sigaction(SIGUSR2, &action, NULL);
    result("by number", syscall(SYS_rt_sigaction, SIGUSR2, NULL, &of_kernel, 8));
    action.sa_handler = SIG_IGN;
    sigaction(SIGUSR2, &action, NULL);
    action.sa_handler = of_kernel.handler;
    action.sa_flags = of_kernel.flags & ~0x04000000;
    result("given back", sigaction(SIGUSR2, &action, NULL));
    result("asked for", sigaction(SIGUSR2, NULL, &action));
    say("  the program's %d, flags %x", action.sa_handler == handler, action.sa_flags & ~0x04000000);
    raise(SIGUSR2);
    say("  handled %d", handled);
}

static void server(void) {
    int fd = serve_one();
    char bytes[16] = "";
    struct pollfd one = {fd, POLLIN, 0};
    result("poll", __poll(&one, 1, LONG_MS));
    say("  %s", events(one.revents));
    read_all(fd, bytes, 8);
    say("read %s", bytes);
    result("write", __write(fd, "back", 4));
    write_from_child(fd);
    meet();
    result("dup2", __dup2(fd, 80) == 80);
    result("close", __close(fd));
    result("it is closed", fcntl(fd, F_GETFD));
    result("write", __write(80, "more", 4));
    result("close", __close(80));
    meet();
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    result("connect once more", __connect(fd, (struct sockaddr *)&name, sizeof name));
    result("send", __send(fd, "1234", 4, MSG_NOSIGNAL));
    result("write", __write(fd, "5678", 4));
    char bytes[16] = "";
    fd_set set;
    FD_ZERO(&set);
    FD_SET(fd, &set);
    result("select", __select(fd + 1, &set, NULL, NULL, NULL));
    result("read", __read(fd, bytes, 4));
    say("read %s", bytes);
    read_all(fd, bytes, 4);
    say("read %s", bytes);
    result("pread", __pread64(fd, bytes, 4, 0));
    result("pwrite", __pwrite64(fd, bytes, 4, 0));
    keep_handler();
    keep_handler_of_kernel();
    result("F_SETFL", __fcntl(fd, F_SETFL, O_NONBLOCK));
    result("nothing there", __read(fd, bytes, 4));
    meet();
    meet();
    wait_for(fd, POLLIN);
    result("read", __read(fd, bytes, 8));
    wait_for(fd, POLLIN);
    result("the end", __read(fd, bytes, 8));
    result("close", __close(fd));
}
