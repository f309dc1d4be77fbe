/* pair: system calls by number, as programs in other languages and some libraries make them, and
 * close_range with descriptors of one's own. */
#include "contract.h"
#include <linux/close_range.h>
#include <sys/syscall.h>

#ifdef SYS_poll
#define POLL(fds, count, ms) syscall(SYS_poll, fds, count, ms)
#else
#define POLL(fds, count, ms) poll(fds, count, ms)
#endif

static void server(void) {
    int fd = syscall(SYS_socket, AF_INET, SOCK_STREAM, 0), one = 1, value = 0;
    struct sockaddr_in name = ipv4("127.0.0.1", 0), peer;
    socklen_t length = sizeof name;
    result("setsockopt", syscall(SYS_setsockopt, fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
    result("bind", syscall(SYS_bind, fd, &name, sizeof name));
    result("listen", syscall(SYS_listen, fd, 16));
    result("getsockname", syscall(SYS_getsockname, fd, &name, &length));
    tell(ntohs(name.sin_port));
    struct pollfd item = {.fd = fd, .events = POLLIN};
    result("ppoll", syscall(SYS_ppoll, &item, 1, NULL, NULL, 8));
    length = sizeof peer;
    int made = syscall(SYS_accept, fd, &peer, &length);
    say("accept %d, family %d", made >= 0, peer.sin_family);
    length = sizeof peer;
    result("getpeername", syscall(SYS_getpeername, made, &peer, &length));
    item.fd = made;
    result("poll", POLL(&item, 1, LONG_MS));
    say("%s", events(item.revents));
    char buffer[16] = "";
    result("recvfrom", syscall(SYS_recvfrom, made, buffer, 3, 0, NULL, NULL));
    say("%s", buffer);
    meet();
    wait_for(made, POLLIN);
    result("ioctl", syscall(SYS_ioctl, made, FIONREAD, &value));
    say("waiting %d", value);
    result("fcntl", syscall(SYS_fcntl, made, F_SETFL, O_NONBLOCK));
    int copy = syscall(SYS_dup, made);
    outcome("dup", copy);
    result("read of the duplicate", syscall(SYS_read, copy, buffer, 16));
    result("empty", syscall(SYS_recvfrom, copy, buffer, 16, 0, NULL, NULL));
    result("dup3", syscall(SYS_dup3, made, 90, O_CLOEXEC));
    result("sendto", syscall(SYS_sendto, 90, "ok", 2, MSG_NOSIGNAL, NULL, 0));
    length = sizeof value;
    result("getsockopt", syscall(SYS_getsockopt, 90, SOL_SOCKET, SO_ERROR, &value, &length));
    result("shutdown", syscall(SYS_shutdown, copy, SHUT_WR));
    result("close_range", syscall(SYS_close_range, 90, 90, 0));
    result("the number is free", fcntl(90, F_GETFD));
    /* A table of descriptors of one's own: afterwards only what is below is there. */
    result("unshare", syscall(SYS_close_range, copy, ~0U, CLOSE_RANGE_UNSHARE));
    result("closed", read(copy, buffer, 1));
    result("left", read(made, buffer, 1));
    int next = socket(AF_INET, SOCK_STREAM, 0);
    say("a new socket %d", next >= 0);
    result("it is unconnected", send(next, "x", 1, MSG_NOSIGNAL));
    meet();
}

static void client(void) {
    int fd = dial();
    char buffer[16];
    write_all(fd, "abc", 3);
    meet();
    write_all(fd, "defg", 4);
    read_all(fd, buffer, 2);
    result("end", read(fd, buffer, 1));
    meet();
    close(fd);
}
