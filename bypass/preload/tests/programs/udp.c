/* pair: UDP, which stays on the kernel: datagrams, names, cut messages, refused ports. */
#include "contract.h"

static void server(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", 0), peer;
    result("bind", bind(fd, (struct sockaddr *)&name, sizeof name));
    tell(port_of(fd));
    char buffer[16];
    socklen_t length = sizeof peer;
    result("recvfrom", recvfrom(fd, buffer, 16, 0, (struct sockaddr *)&peer, &length));
    result("sendto", sendto(fd, "answer", 6, 0, (struct sockaddr *)&peer, length));
    result("an empty one", recvfrom(fd, buffer, 16, 0, (struct sockaddr *)&peer, &length));
    result("a cut one", recvfrom(fd, buffer, 2, MSG_TRUNC, (struct sockaddr *)&peer, &length));
    close(fd);
    meet();
}

static void client(void) {
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", hear());
    result("send without a name", send(fd, "x", 1, 0));
    result("sendto", sendto(fd, "ask", 3, 0, (struct sockaddr *)&name, sizeof name));
    char buffer[16] = "";
    result("recv", recv(fd, buffer, 16, 0));
    say("%s", buffer);
    result("connect", connect(fd, (struct sockaddr *)&name, sizeof name));
    result("send nothing", send(fd, "", 0, 0));
    result("write", write(fd, "longer", 6));
    meet();
    result("to a closed port", write(fd, "x", 1));
    wait_for(fd, POLLERR);
    say_poll("poll", fd, POLLIN | POLLOUT, 0);
    result("write again", write(fd, "x", 1));
    result("listen", listen(fd, 1));
}
