/* pair: exec in one of six processes that hold a connection, on a server whose many children have another one: first it
 * fails, then the new program writes. */
#include "contract.h"
#include <sys/prctl.h>

/* More than are named by a bit. */
#define CHILDREN 64
/* Besides their parent. */
#define HOLDERS 5

/* The second image is this program again, with the number in the environment. */
__attribute__((constructor)) static void second_image(void) {
    const char *connected = getenv("CONTRACT_CONNECTED");
    if (connected) {
        result("write after exec", send(atoi(connected), "new image", 9, MSG_NOSIGNAL));
        exit(0);
    }
}

static pid_t child_that_waits(void) {
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return child;
}

static void replace_image(int fd) {
    char number[16];
    execl("/nonexistent", "contract", NULL);
    write_all(fd, "former", 6);
    snprintf(number, sizeof number, "%d", fd);
    setenv("CONTRACT_CONNECTED", number, 1);
    execl("/proc/self/exe", "contract", "server", NULL);
    _exit(9);
}

static void server(void) {
    pid_t waiting[CHILDREN + HOLDERS - 1], child;
    int listening = listener(4), status, count = 0;
    int other = accept(listening, NULL, NULL);
    while (count < CHILDREN)
        waiting[count++] = child_that_waits();
    tell(0);
    int fd = accept(listening, NULL, NULL);
    while (count < CHILDREN + HOLDERS - 1)
        waiting[count++] = child_that_waits();
    need((child = fork()) >= 0, "fork");
    if (child == 0)
        replace_image(fd);
    waitpid(child, &status, 0);
    say("ended %d", status);
    write_all(fd, "parent", 6);
    close(fd);
    close(other);
    for (int i = 0; i < count; i++) {
        kill(waiting[i], SIGKILL);
        waitpid(waiting[i], NULL, 0);
    }
}

static void client(void) {
    int port = hear();
    char text[32] = "";
    dial_port(port);
    hear();
    int fd = dial_port(port);
    read_all(fd, text, 21);
    say("read %s", text);
    say("then %zd", read(fd, text, 1));
}
