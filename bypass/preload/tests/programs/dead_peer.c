/* pair: keepalive probes and the user timeout end connections with a host that is gone, and only those. */
#include "contract.h"

/* Connections of each direction: one is probed, one has sent bytes that stay unacknowledged, one is well. */
enum { PROBED, UNANSWERED, WELL, COUNT };

/* Probes to the one that is well: its host may be busy. */
#define PATIENT 60

static void set_probes(int fd) {
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, 1);
}

static void say_end(const char *name, int fd, double begun_s, double least_s) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    need(poll(&one, 1, LONG_MS) == 1, name);
    say("%s: %s", name, events(one.revents));
    say("  after its time %d", now_s() - begun_s >= least_s);
    char byte;
    result("  read", read(fd, &byte, 1));
    result("  read again", read(fd, &byte, 1));
    result("  write", send(fd, "y", 1, MSG_NOSIGNAL));
    say("  closed %d", tcp_info(fd).tcpi_state == TCP_CLOSE);
}

static void say_sent_again(const char *direction, int fd) {
    while (tcp_info(fd).tcpi_total_retrans == 0)
        usleep(10000);
    struct tcp_info info = tcp_info(fd);
    say("%s: unacknowledged %u, state %u", direction, info.tcpi_unacked, info.tcpi_state);
}

static void watch(const char *direction, const int *fds, double begun_s) {
    say("%s", direction);
    say_end("probed", fds[PROBED], begun_s, 1.9);
    say_end("unanswered", fds[UNANSWERED], begun_s, 2.4);
    say("well: state %u", tcp_info(fds[WELL]).tcpi_state);
    write_all(fds[WELL], "?", 1);
    char byte;
    read_all(fds[WELL], &byte, 1);
    say("  answers %c", byte);
}

/* The connections that are looked at. */
static void server(void) {
    int accepted[COUNT], connected[COUNT];
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    set_probes(listening);
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    need(bind(listening, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    need(listen(listening, 8) == 0, "listen");
    double begun_s = now_s();
    tell(port_of(listening));
    for (int i = 0; i < COUNT; i++)
        need((accepted[i] = accept(listening, NULL, NULL)) >= 0, "accept");
    set_int(accepted[WELL], IPPROTO_TCP, TCP_KEEPCNT, PATIENT);
    set_int(accepted[UNANSWERED], SOL_SOCKET, SO_KEEPALIVE, 0);
    socklen_t length = sizeof name;
    need(getpeername(accepted[WELL], (struct sockaddr *)&name, &length) == 0, "getpeername");
    name.sin_port = htons(hear());
    for (int i = 0; i < COUNT; i++) {
        connected[i] = socket(AF_INET, SOCK_STREAM, 0);
        if (i != UNANSWERED)
            set_probes(connected[i]);
        need(connect(connected[i], (struct sockaddr *)&name, length) == 0, "connect");
    }
    set_int(connected[WELL], IPPROTO_TCP, TCP_KEEPCNT, PATIENT);
    meet();
    for (int i = 0; i < 2; i++) {
        int fd = i ? connected[UNANSWERED] : accepted[UNANSWERED];
        set_int(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 2500);
        write_all(fd, "x", 1);
    }
    say_sent_again("accepted", accepted[UNANSWERED]);
    say_sent_again("connected", connected[UNANSWERED]);
    watch("accepted", accepted, begun_s);
    watch("connected", connected, begun_s);
    meet();
}

/* The host that is gone. */
static void client(void) {
    stay_on_the_kernel("client");
    int dialled[COUNT], accepted[COUNT], port = hear();
    for (int i = 0; i < COUNT; i++)
        dialled[i] = dial_port(port);
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    need(getsockname(dialled[WELL], (struct sockaddr *)&name, &length) == 0, "getsockname");
    int listening = socket(AF_INET, SOCK_STREAM, 0);
    name.sin_port = 0;
    need(bind(listening, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    need(listen(listening, 8) == 0, "listen");
    tell(port_of(listening));
    for (int i = 0; i < COUNT; i++)
        need((accepted[i] = accept(listening, NULL, NULL)) >= 0, "accept");
    for (int i = PROBED; i < WELL; i++) {
        deafen(dialled[i]);
        deafen(accepted[i]);
    }
    meet();
    for (int i = 0; i < 2; i++) {
        char byte;
        int fd = i ? accepted[WELL] : dialled[WELL];
        read_all(fd, &byte, 1);
        write_all(fd, "!", 1);
    }
    meet();
}
