/* pair: a connection is there after exec also where there is no /proc, as in a chroot. */
#include "contract.h"
#include <sched.h>
#include <sys/mount.h>

/* The second image is this program again, with the number in the environment. */
__attribute__((constructor)) static void second_image(void) {
    const char *number = getenv("CONTRACT_CONNECTED");
    if (number) {
        result("write after exec", send(atoi(number), "hello", 5, MSG_NOSIGNAL));
        exit(0);
    }
}

/* Where that is not allowed the program goes on, and says no more than exec_inherit. */
static void hide_proc(void) {
    if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        mount("tmpfs", "/proc", "tmpfs", 0, NULL);
}

static void server(void) {
    char path[4096] = "", number[16];
    int status, fd = serve_one();
    need(readlink("/proc/self/exe", path, sizeof path - 1) > 0, "readlink");
    pid_t child = fork();
    if (child == 0) {
        snprintf(number, sizeof number, "%d", fd);
        setenv("CONTRACT_CONNECTED", number, 1);
        hide_proc();
        execl(path, "contract", "server", NULL);
        _exit(9);
    }
    waitpid(child, &status, 0);
    say("ended %d", status);
    close(fd);
}

static void client(void) {
    char buffer[16] = "";
    int fd = dial();
    result("read", recv(fd, buffer, 5, MSG_WAITALL));
    say("read %s", buffer);
    result("end", recv(fd, buffer, 1, 0));
}
