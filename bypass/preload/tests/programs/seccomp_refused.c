/* pair: a server asks for a filter for all of its threads, which the kernel refuses: it goes on, and notices that a client is
 * killed. */
#include "contract.h"
#include <linux/seccomp.h>
#include <sys/syscall.h>

static void server(void) {
    int listening = listener(8), fd = accept(listening, NULL, NULL);
    struct sock_fprog none = {0};
    char letter;
    need(fd >= 0, "accept");
    alarm(LONG_S);
    read_all(fd, &letter, 1);
    result("a filter of nothing",
           syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &none));
    tell(0);
    result("the end", read(fd, &letter, 1));
    fd = accept(listening, NULL, NULL);
    outcome("accept", fd);
    read_all(fd, &letter, 1);
    write_all(fd, &letter, 1);
    result("the end", read(fd, &letter, 1));
}

static void client(void) {
    int port = hear();
    char letter = 'a';
    pid_t child = fork();
    if (child == 0) {
        write_all(dial_port(port), "x", 1);
        for (;;)
            pause();
    }
    hear();
    kill(child, SIGKILL);
    need(waitpid(child, NULL, 0) == child, "waitpid");
    int fd = dial_port(port);
    write_all(fd, &letter, 1);
    result("answer", read(fd, &letter, 1));
    close(fd);
}
