/* pair: a client that enters another network namespace, if it may: the same address is unknown there, its
 * connections go on, and what was made before belongs to the former namespace still. */
#include <net/if.h>
#include <sched.h>
#include "contract.h"

static int echo_once(int fd) {
    char word[4] = "";
    return send(fd, "ping", 4, MSG_NOSIGNAL) == 4 && recv(fd, word, 4, MSG_WAITALL) == 4 &&
           memcmp(word, "ping", 4) == 0;
}

static void server(void) {
    int listening = listener(16), fds[2];
    char word[4];
    for (int i = 0; i < 2; i++) {
        fds[i] = accept(listening, NULL, NULL);
        while (recv(fds[i], word, 4, MSG_WAITALL) == 4) {
            write_all(fds[i], word, 4);
            if (hear())
                break;
        }
    }
    struct pollfd one = {.fd = listening, .events = POLLIN};
    result("no other client has come", poll(&one, 1, 0));
    int port = hear();
    int to_first = dial_port(port);
    say("an earlier listener: %d", echo_once(to_first));
}

static void say_connect(const char *name, int fd, int port) {
    struct sockaddr_in address = ipv4("127.0.0.1", port);
    outcome(name, connect(fd, (struct sockaddr *)&address, sizeof address));
}

static void enter(void) {
    struct ifreq interface = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    need(unshare(CLONE_NEWNET) == 0, "unshare");
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    need(ioctl(fd, SIOCSIFFLAGS, &interface) == 0, "lo");
    close(fd);
}

static void client(void) {
    int port = hear(), fd = dial_port(port), before = socket(AF_INET, SOCK_STREAM, 0);
    int listening = listener_on("127.0.0.1", 4), word;
    say("in the first: %d", echo_once(fd));
    tell(0);
    if (geteuid() == 0)
        enter();
    else
        need(close(socket(AF_INET, SOCK_STREAM, 0)) == 0, "socket");
    if (geteuid() == 0)
        say_connect("the address here", socket(AF_INET, SOCK_STREAM, 0), port);
    else
        say("the address here = -1 ECONNREFUSED");
    say("the connection goes on: %d", echo_once(fd));
    tell(1);
    say_connect("an earlier socket", before, port);
    say("it is of the first: %d", echo_once(before));
    tell(1);
    int here = listener_on("127.0.0.1", 4);
    int to_here = socket(AF_INET, SOCK_STREAM, 0);
    say_connect("a listener here", to_here, port_of(here));
    int accepted = accept(here, NULL, NULL);
    result("write", write(to_here, "here", 4));
    result("read", recv(accepted, &word, 4, MSG_WAITALL));
    tell(port_of(listening));
    int second = accept(listening, NULL, NULL);
    result("read", recv(second, &word, 4, MSG_WAITALL));
    result("write", write(second, &word, 4));
}
