/* Shared by the programs about datagrams: two bound sockets, each of which knows the other's name. */
#ifndef DATAGRAMS_H
#define DATAGRAMS_H
#include "contract.h"

/* A socket is taken part in once it has been used some times. */
UNUSED static void use(int fd) {
    char byte;
    for (int i = 0; i < 10; i++)
        need(recv(fd, &byte, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "nothing");
}

/* A UDP socket on an ephemeral port of every address. */
UNUSED static int datagram_socket(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    need(fd >= 0, "socket");
    struct sockaddr_in name = {.sin_family = AF_INET};
    need(bind(fd, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    use(fd);
    return fd;
}

/* The server's end, to whom the client has said its name. */
UNUSED static int served(struct sockaddr_in *client) {
    int fd = datagram_socket();
    tell(port_of(fd));
    char byte;
    socklen_t length = sizeof *client;
    need(recvfrom(fd, &byte, 1, 0, (struct sockaddr *)client, &length) == 1, "first datagram");
    meet();
    return fd;
}

/* The client's, and the name of the server. */
UNUSED static int asking(struct sockaddr_in *server) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    need(fd >= 0, "socket");
    *server = ipv4("127.0.0.1", hear());
    need(sendto(fd, "f", 1, 0, (struct sockaddr *)server, sizeof *server) == 1, "first datagram");
    use(fd);
    meet();
    return fd;
}

UNUSED static void send_text(int fd, const struct sockaddr_in *to, const char *text) {
    need(sendto(fd, text, strlen(text), 0, (const struct sockaddr *)to, sizeof *to) ==
             (ssize_t)strlen(text),
         "sendto");
}

/* The next datagram, as text. */
UNUSED static void say_next(const char *name, int fd, int flags) {
    char text[256] = "";
    long got = recv(fd, text, sizeof text - 1, flags);
    if (got < 0)
        say("%s: -1 %s", name, strerrorname_np(errno));
    else
        say("%s: %ld \"%s\"", name, got, text);
}
#endif
