/* solo: the first socket takes the last descriptor; later, with room, a blocked accept is woken. */
#define SOLO
#include "contract.h"

static volatile pid_t announced;

static void *accepts(void *listening) {
    announced = gettid();
    int fd = accept(*(int *)listening, NULL, NULL);
    outcome("accept", fd);
    write_all(fd, "k", 1);
    return NULL;
}

static void solo(void) {
    struct rlimit limit = {64, 64};
    int full[64], count = 0;
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    while (count < 64 && (full[count] = open("/dev/null", O_RDONLY)) >= 0)
        count++;
    result("full", socket(AF_INET, SOCK_STREAM, 0));
    close(full[--count]);
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    outcome("the last descriptor", listening);
    while (count > 0)
        close(full[--count]);
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    need(bind(listening, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    result("listen", listen(listening, 4));
    pthread_t thread;
    pthread_create(&thread, NULL, accepts, &listening);
    until_it_waits(&announced);
    alarm(LONG_S);
    int fd = dial_port(port_of(listening));
    char byte;
    read_all(fd, &byte, 1);
    say("answered %c", byte);
    pthread_join(thread, NULL);
}
