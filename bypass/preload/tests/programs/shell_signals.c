/* pair: the shell of system(3) that inherits a connection: its signals, its status and its environment. */
#include "contract.h"

static void say_signal(int number) { say("signal %d", number == SIGCHLD); }

static void say_masks(void) {
    sigset_t mask;
    struct sigaction interrupt, quit;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    sigaction(SIGINT, NULL, &interrupt);
    sigaction(SIGQUIT, NULL, &quit);
    say("SIGCHLD blocked %d, SIGINT by default %d, SIGQUIT ignored %d", sigismember(&mask, SIGCHLD),
        interrupt.sa_handler == SIG_DFL, quit.sa_handler == SIG_IGN);
}

static void server(void) {
    int fd = serve_one();
    char command[64];
    signal(SIGQUIT, SIG_IGN);
    signal(SIGCHLD, say_signal);
    setenv("OWN", "variable", 1);
    result("there is a shell", system(NULL) != 0);
    result("status", system("exit 7"));
    result("none of this name", system("exec /nowhere/none 2>/dev/null"));
    result("killed", system("kill -9 $$"));
    result("interrupted", system("kill -INT $$; exit 3"));
    result("one that ignores it", system("kill -QUIT $$; exit 4"));
    result("an interrupt of the parent", system("kill -INT $PPID; exit 5"));
    result("its variable", system("test \"$OWN\" = variable"));
    snprintf(command, sizeof command, "read line <&%d; echo \"shell $line\" >&%d", fd, fd);
    result("the connection", system(command));
    say_masks();
    meet();
}

static void client(void) {
    int fd = dial();
    char text[32] = "";
    write_all(fd, "line\n", 5);
    read_all(fd, text, 11);
    say("%s", text);
    meet();
}
