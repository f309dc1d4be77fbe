/* pair: the first clients of all of a server that waits in an epoll set and serves them itself come at once: none of
 * them is left to the kernel where both ends are accelerated, as known_differences.txt says. */
#include "contract.h"

#define CONNECTIONS 100

/* Whether the kernel has an established connection with this port at our end. */
static int is_kernels(int port) {
    char line[256];
    unsigned local, state;
    int count = 0;
    FILE *file = fopen("/proc/net/tcp", "r");
    need(file != NULL, "/proc/net/tcp");
    while (fgets(line, sizeof line, file))
        if (sscanf(line, " %*d: %*8[0-9A-F]:%x %*8[0-9A-F]:%*x %x", &local, &state) == 2)
            count += local == (unsigned)port && state == 1;
    fclose(file);
    return count > 0;
}

static void server(void) {
    int listening = listener(128), set = epoll_create1(0), ended = 0;
    int port = port_of(listening);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listening};
    set_nonblocking(listening);
    need(epoll_ctl(set, EPOLL_CTL_ADD, listening, &event) == 0, "epoll_ctl");
    tell(0);
    while (ended < CONNECTIONS) {
        need(epoll_wait(set, &event, 1, LONG_MS) == 1, "epoll_wait");
        int fd = event.data.fd;
        if (fd == listening) {
            event.data.fd = accept(listening, NULL, NULL);
            need(event.data.fd >= 0, "accept");
            need(epoll_ctl(set, EPOLL_CTL_ADD, event.data.fd, &event) == 0, "epoll_ctl");
            continue;
        }
        char letter;
        if (read(fd, &letter, 1) == 1) {
            if (letter == 'z')
                say("the kernel has some: %d", is_kernels(port));
            write_all(fd, &letter, 1);
            continue;
        }
        close(fd);
        ended++;
    }
}

static void client(void) {
    int port = hear(), fds[CONNECTIONS], answered = 0;
    hear();
    for (int i = 0; i < CONNECTIONS; i++)
        fds[i] = dial_port(port);
    for (int i = 0; i < CONNECTIONS; i++) {
        char letter = i == CONNECTIONS - 1 ? 'z' : 'a', answer = 0;
        write_all(fds[i], &letter, 1);
        answered += read(fds[i], &answer, 1) == 1 && answer == letter;
    }
    for (int i = 0; i < CONNECTIONS; i++)
        close(fds[i]);
    say("answered %d", answered);
}
