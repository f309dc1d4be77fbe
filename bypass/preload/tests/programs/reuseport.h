/* Two listeners of one port, and a program of the kernel that chooses the first. */
#include "contract.h"

#define CONNECTIONS 12

static struct sock_filter FIRST = BPF_STMT(BPF_RET | BPF_K, 0);
static const struct sock_fprog CHOOSES_FIRST = {1, &FIRST};

static void attach(int fd) {
    result("program", setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &CHOOSES_FIRST, sizeof CHOOSES_FIRST));
}

static int unbound_member(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    return fd;
}

static int listening(int fd, int port) {
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    need(bind(fd, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    need(listen(fd, 64) == 0, "listen");
    set_nonblocking(fd);
    return fd;
}

/* Says how many connections of the client each has. The last one may still be on its way to the listener when its
 * client has it. */
static void count(const int members[2]) {
    int counts[2] = {0, 0};
    tell(port_of(members[0]));
    hear();
    double until = now_s() + LONG_S;
    do {
        for (int i = 0; i < 2; i++)
            while (accept(members[i], NULL, NULL) >= 0)
                counts[i]++;
        usleep(1000);
    } while (counts[0] + counts[1] < CONNECTIONS && now_s() < until);
    say("accepted %d and %d", counts[0], counts[1]);
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < CONNECTIONS; i++)
        dial_port(port);
    tell(0);
    char byte;
    recv(CHANNEL, &byte, 1, 0); /* until the server has ended */
}
