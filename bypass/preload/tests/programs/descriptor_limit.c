/* pair: when descriptors run out: EMFILE from socket and accept, and going on afterwards. */
#include "contract.h"

static void server(void) {
    int listening = listener_on("127.0.0.1", 16), full[64], count = 0;
    struct rlimit limit = {40, 40};
    tell(port_of(listening));
    hear();
    setrlimit(RLIMIT_NOFILE, &limit);
    while (count < 64 && (full[count] = open("/dev/null", O_RDONLY)) >= 0)
        count++;
    result("open", -1);
    result("socket", socket(AF_INET, SOCK_STREAM, 0));
    result("accept", accept(listening, NULL, NULL));
    result("dup", dup(listening));
    result("epoll_create1", epoll_create1(0));
    close(full[--count]);
    int fd = accept(listening, NULL, NULL);
    outcome("accept with room", fd);
    write_all(fd, "k", 1);
    result("close", close(fd));
    outcome("its number is free for a file", open("/dev/null", O_RDONLY));
}

static void client(void) {
    int fd = dial_port(hear());
    tell(0);
    char byte;
    read_all(fd, &byte, 1);
    result("end", read(fd, &byte, 1));
}
