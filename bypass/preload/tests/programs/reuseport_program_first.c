/* pair: a program of the kernel's that chooses among listeners of one port is set before the first of them is bound. */
#include "contract.h"

#define CONNECTIONS 12

static int member_of(int port, const struct sock_fprog *program) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    set_int(fd, SOL_SOCKET, SO_REUSEPORT, 1);
    if (program)
        result("program",
               setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, program, sizeof *program));
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    need(bind(fd, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    need(listen(fd, 64) == 0, "listen");
    set_nonblocking(fd);
    result("accept", accept(fd, NULL, NULL)); /* It accepts from now on. */
    return fd;
}

static void server(void) {
    struct sock_filter first = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {1, &first};
    int members[2], counts[2] = {0, 0};
    members[0] = member_of(0, &program);
    members[1] = member_of(port_of(members[0]), NULL);
    tell(port_of(members[0]));
    hear();
    for (int i = 0; i < 2; i++)
        while (accept(members[i], NULL, NULL) >= 0)
            counts[i]++;
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
