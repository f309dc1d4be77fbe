/* solo: ports that are taken, free again, or not ours to bind. */
#define SOLO
#include "contract.h"

static int try_bind(const char *what, const char *address, int port, int reuse) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    struct sockaddr_in name = ipv4(address, port);
    result(what, bind(fd, (struct sockaddr *)&name, sizeof name));
    return fd;
}

static void solo(void) {
    int first = listener_on("127.0.0.1", 4), port = port_of(first);
    close(try_bind("taken", "127.0.0.1", port, 0));
    close(try_bind("taken, with SO_REUSEADDR", "127.0.0.1", port, 1));
    close(try_bind("taken, by any address", "0.0.0.0", port, 0));
    close(try_bind("the same port of another address", "127.0.0.2", port, 0));
    int client = dial_port(port), peer = accept(first, NULL, NULL);
    close(first);
    first = try_bind("the listener is gone, its connection is not", "127.0.0.1", port, 0);
    close(first);
    first = try_bind("with SO_REUSEADDR", "127.0.0.1", port, 1);
    result("listen", listen(first, 4));
    close(client);
    close(peer);
    result("bind twice", bind(first, (struct sockaddr *)&(struct sockaddr_in){.sin_family = AF_INET},
                              sizeof(struct sockaddr_in)));
    try_bind("an address of no host", "192.0.2.1", 0, 0);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", 0);
    result("a short name", bind(fd, (struct sockaddr *)&name, 4));
    name.sin_family = AF_UNIX;
    result("a wrong family", bind(fd, (struct sockaddr *)&name, sizeof name));
    result("a closed number", bind(900, (struct sockaddr *)&name, sizeof name));
}
