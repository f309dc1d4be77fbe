/* pair: handlers that use the very connection, and make others, while their thread works on it. */
#include "contract.h"

#define BYTES (24 * 1024 * 1024)
#define LAST 'L'
/* A handler that takes longer than the timers' interval is followed by the next one at once: without
 * an end the work between them would stand still on a slow machine. */
#define HANDLERS_MAX 4000

static int connection, port;
static volatile sig_atomic_t handled, sent, made;

static void arm(int interval_us) {
    struct itimerval often = {.it_interval = {.tv_usec = interval_us},
                              .it_value = {.tv_usec = interval_us}};
    setitimer(ITIMER_REAL, &often, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
}

static void handler(int number) {
    int error = errno;
    if (++handled == HANDLERS_MAX)
        arm(0);
    char byte = number == SIGALRM ? 'X' : 'Y';
    if (send(connection, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
        sent++;
    if (sent % 8 == 0) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in name = ipv4("127.0.0.1", port);
        if (connect(fd, (struct sockaddr *)&name, sizeof name) == 0)
            made++;
        close(fd);
    }
    errno = error;
}

static void *take_others(void *listening) {
    for (int fd; (fd = accept(*(int *)listening, NULL, NULL)) >= 0;)
        close(fd);
    return NULL;
}

static void server(void) {
    int listening = listener(128), fd = accept(listening, NULL, NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, take_others, &listening);
    static char buffer[70000];
    long plain = 0, extra = 0, other = 0, last = 0;
    for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;)
        for (ssize_t i = 0; i < got; i++) {
            plain += buffer[i] == 'a';
            extra += buffer[i] == 'X' || buffer[i] == 'Y';
            last += buffer[i] == LAST;
            other += buffer[i] != 'a' && buffer[i] != 'X' && buffer[i] != 'Y' && buffer[i] != LAST;
        }
    say("plain %ld other %ld last %ld", plain, other, last);
    say("all of the handlers' %d", extra == hear());
}

static void client(void) {
    static char buffer[3000];
    memset(buffer, 'a', sizeof buffer);
    port = hear();
    connection = dial_port(port);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaddset(&action.sa_mask, SIGALRM);
    sigaddset(&action.sa_mask, SIGPROF);
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGPROF, &action, NULL);
    arm(300);
    for (long done = 0; done < BYTES / (long)sizeof buffer; done++)
        write_all(connection, buffer, sizeof buffer);
    arm(0);
    char byte = LAST;
    result("last", send(connection, &byte, 1, 0));
    close(connection);
    say("handlers ran %d, made connections %d", sent > 0, made > 0);
    tell(sent);
}
