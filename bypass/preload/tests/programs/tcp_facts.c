/* pair: TCP_INFO, TCP_CONGESTION and TCP_MAXSEG of connections. */
#include "contract.h"

#define BYTES 4000

static void wait_for_state(const char *name, int fd, int state) {
    double begun_s = now_s();
    while (tcp_info(fd).tcpi_state != state && now_s() - begun_s < LONG_S)
        usleep(1000);
    say("%s: state %d", name, tcp_info(fd).tcpi_state);
}

static void say_facts(const char *name, int fd) {
    struct tcp_info info = tcp_info(fd);
    say("%s: state %u", name, info.tcpi_state);
    /* On a busy machine one or the other. */
    say("  few are sent again %d", info.tcpi_total_retrans < 10);
    say("  a segment size %d, a time %d, a window %d", info.tcpi_snd_mss > 500, info.tcpi_rtt > 0,
        info.tcpi_snd_cwnd >= 2);
    say("  a timeout %d, a packet size %d, a stated segment %d, reordering %d", info.tcpi_rto > 0,
        info.tcpi_pmtu > 500, info.tcpi_advmss > 500, info.tcpi_reordering >= 3);
}

static void say_congestion(int fd) {
    char name[16] = "";
    socklen_t length = sizeof name;
    result("  TCP_CONGESTION", getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length));
    say("  %s %u", name, length);
}

static void choose(int fd, const char *name) {
    say("choose %s", name);
    result("  set", setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name)));
    say_congestion(fd);
}

static void say_segment(const char *name, int fd) {
    int bytes = 0;
    socklen_t length = sizeof bytes;
    result(name, getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &bytes, &length));
    say("  a size %d", bytes > 500);
}

static void exchange(int fd, int is_first) {
    unsigned char bytes[BYTES];
    fill(bytes, BYTES, 0);
    for (int i = 0; i < 2; i++)
        if (i == is_first)
            read_all(fd, bytes, BYTES);
        else
            write_all(fd, bytes, BYTES);
}

static void server(void) {
    int listening = listener(4);
    int fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    exchange(fd, 0);
    say_facts("accepted", fd);
    say_segment("TCP_MAXSEG", fd);
    choose(fd, "reno");
    choose(fd, "none_of_this_name");
    meet();
    result("shutdown", shutdown(fd, SHUT_WR));
    wait_for_state("the end is acknowledged", fd, 5);
    meet();
    wait_for_state("both have ended", fd, TCP_CLOSE);
    meet();
    fd = accept(listening, NULL, NULL);
    exchange(fd, 0);
    meet();
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    say_facts("connected", fd);
    exchange(fd, 1);
    say_facts("after an answer", fd);
    choose(fd, "reno");
    int value = 87;
    result("too small a segment",
           setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &value, sizeof value));
    value = 1000;
    result("a segment", setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &value, sizeof value));
    meet();
    char byte;
    result("the end", read(fd, &byte, 1));
    wait_for_state("the other has ended", fd, TCP_CLOSE_WAIT);
    meet();
    close(fd);
    meet();
    fd = socket(AF_INET, SOCK_STREAM, 0);
    set_int(fd, IPPROTO_TCP, TCP_MAXSEG, 1000);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    exchange(fd, 1);
    socklen_t length = sizeof value;
    getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &value, &length);
    say("a limited segment %d", value > 500 && value <= 1000);
    meet();
}
