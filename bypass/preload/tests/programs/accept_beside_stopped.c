/* pair: a process that waits in accept is woken for each connection although one that joined it later is stopped. */
#include "contract.h"

#define CONNECTIONS 4
#define LOOKS 20

static void server(void) {
    int listening = listener(4);
    pid_t later = fork();
    if (later == 0) {
        hear();
        tell(0);
        accept(listening, NULL, NULL);
        _exit(0);
    }
    tell(getpid());
    tell(later);
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = accept(listening, NULL, NULL);
        write_all(fd, "s", 1);
        close(fd);
    }
    kill(later, SIGKILL);
    waitpid(later, NULL, 0);
}

/* S: it sleeps; T: it is stopped. It may sleep on its way, too. */
static void until_in(pid_t process, char state) {
    char name[64], line[256];
    snprintf(name, sizeof name, "/proc/%d/stat", process);
    for (int looks = 0; looks < LOOKS;) {
        usleep(5000);
        memset(line, 0, sizeof line);
        int file = open(name, O_RDONLY | O_CLOEXEC);
        need(file >= 0 && read(file, line, sizeof line - 1) > 0, name);
        close(file);
        const char *end = strrchr(line, ')');
        looks = end && end[2] == state ? looks + 1 : 0;
    }
}

static int is_served(int port) {
    char byte = 0;
    int fd = dial_port(port);
    read_all(fd, &byte, 1);
    close(fd);
    return byte == 's';
}

static void client(void) {
    int port = hear(), first = hear(), later = hear();
    /* An odd number of connections with the next one: the later of two is the first whose turn it is. */
    int served = is_served(port) + is_served(port);
    until_in(first, 'S');
    tell(0);
    hear();
    until_in(later, 'S');
    need(kill(later, SIGSTOP) == 0, "stop");
    until_in(later, 'T');
    for (int i = 2; i < CONNECTIONS; i++)
        served += is_served(port);
    say("served %d", served);
}
