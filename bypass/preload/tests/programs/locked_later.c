/* pair: a server that locks its memory while ten client processes are connected: its own becomes resident, segments do not. */
#include "memory.h"
#include <sys/syscall.h>

#define CLIENTS 10

static void echo(int fd) {
    char letter;
    read_all(fd, &letter, 1);
    write_all(fd, &letter, 1);
}

static void lock(const char *name, int flags, const int *fds) {
    unsigned char *before = untouched();
    errno = 0;
    result(name, mlockall(flags));
    say("errno %s", error_name(errno));
    say_resident("mapped before", before);
    say_resident("mapped after", untouched());
    say("more than 64 MiB are resident: %d", status_of("VmRSS:") > 64 << 10);
    say("locked segments %d", mappings(NULL, " lo", 1));
    for (int i = 0; i < CLIENTS; i++)
        echo(fds[i]);
}

static void server(void) {
    int fds[CLIENTS], listening = listener(CLIENTS);
    for (int i = 0; i < CLIENTS; i++) {
        need((fds[i] = accept(listening, NULL, NULL)) >= 0, "accept");
        echo(fds[i]);
    }
    lock("MCL_CURRENT", MCL_CURRENT, fds);
    need(munlockall() == 0, "munlockall");
    lock("MCL_ONFAULT", MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT, fds);
    need(munlockall() == 0, "munlockall");
    need(syscall(SYS_mlockall, MCL_FUTURE) == 0, "mlockall by number");
    lock("both", MCL_CURRENT | MCL_FUTURE, fds);
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < CLIENTS; i++) {
        if (fork() > 0)
            continue;
        int fd = dial_port(port);
        char letter = 'a';
        for (int round = 0; round < 4; round++) {
            write_all(fd, &letter, 1);
            read_all(fd, &letter, 1);
        }
        _exit(read(fd, &letter, 1) != 0);
    }
    say_ended_well(CLIENTS);
}
