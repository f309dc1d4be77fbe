/* pair: one urgent byte: MSG_OOB, the mark, POLLPRI and SIGURG. */
#include "contract.h"

static volatile sig_atomic_t urgent;
static void handler(int number) {
    (void)number;
    urgent++;
}

static void server(void) {
    int fd = serve_one();
    hear();
    write_all(fd, "ab", 2);
    result("send urgent", send(fd, "!", 1, MSG_OOB));
    write_all(fd, "cd", 2);
    meet();
    meet();
}

static int at_mark(int fd) {
    int mark = -1;
    need(ioctl(fd, SIOCATMARK, &mark) == 0, "SIOCATMARK");
    need(sockatmark(fd) == mark, "sockatmark");
    return mark;
}

static void client(void) {
    int fd = dial();
    char buffer[8] = "";
    signal(SIGURG, handler);
    result("F_SETOWN", fcntl(fd, F_SETOWN, getpid()));
    result("urgent before", recv(fd, buffer, 1, MSG_OOB));
    tell(0);
    meet();
    wait_for(fd, POLLPRI);
    say_poll("poll", fd, POLLIN | POLLPRI, 0);
    say("signals %d", urgent > 0);
    result("read stops at the mark", read(fd, buffer, 8));
    say("%.2s at mark %d", buffer, at_mark(fd));
    result("urgent", recv(fd, buffer, 1, MSG_OOB));
    say("%c", buffer[0]);
    result("urgent again", recv(fd, buffer, 1, MSG_OOB));
    result("read goes on", read(fd, buffer, 8));
    say("%.2s at mark %d", buffer, at_mark(fd));
    meet();
}
