/* pair: many connections that do not block, opened through one epoll set: none is reported in any way
 * before it stands, then as writable only, and every reply is complete. */
#include "contract.h"

#define CONNECTIONS 4000
#define AT_ONCE 32
#define REPLY 1000
#define ALL (EPOLLIN | EPOLLOUT | EPOLLRDHUP)

static void answer(int fd) {
    unsigned char reply[REPLY];
    int number;
    if (read(fd, &number, sizeof number) != sizeof number)
        say("a request that is not whole: %s", strerror(errno));
    fill(reply, sizeof reply, number);
    write_all(fd, reply, sizeof reply);
    close(fd);
}

static void server(void) {
    int listening = listener(2 * AT_ONCE), set = epoll_create1(0), served = 0;
    set_nonblocking(listening);
    struct epoll_event wanted = {EPOLLIN, {.fd = listening}}, found[AT_ONCE];
    epoll_ctl(set, EPOLL_CTL_ADD, listening, &wanted);
    while (served < CONNECTIONS) {
        int count = epoll_wait(set, found, AT_ONCE, LONG_MS);
        need(count > 0, "epoll_wait of the server");
        for (int i = 0; i < count; i++) {
            if (found[i].data.fd != listening) {
                answer(found[i].data.fd);
                served++;
                continue;
            }
            for (int fd; (fd = accept(listening, NULL, NULL)) >= 0;) {
                struct epoll_event request = {EPOLLIN, {.fd = fd}};
                epoll_ctl(set, EPOLL_CTL_ADD, fd, &request);
            }
        }
    }
    say("served");
    meet();
}

static struct {
    int fd, number, is_open, got;
} conns[AT_ONCE];
static int early, incomplete, wrong, done;

static void begin(int set, int at, const struct sockaddr_in *name) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    need(fd >= 0, "socket");
    int made = connect(fd, (const struct sockaddr *)name, sizeof *name);
    need(made == 0 || errno == EINPROGRESS, "connect");
    conns[at].fd = fd;
    conns[at].is_open = conns[at].got = 0;
    struct epoll_event wanted = {ALL, {.u32 = at}};
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &wanted) == 0, "EPOLL_CTL_ADD");
}

static void opened(int set, int at, unsigned bits) {
    if (bits != EPOLLOUT && early++ < 3)
        say("before it stands, or as it does: %s, SO_ERROR %s", events(bits),
            error_name(so_error(conns[at].fd)));
    if (!(bits & EPOLLOUT))
        return;
    need(write(conns[at].fd, &conns[at].number, sizeof conns[at].number) > 0, "write");
    conns[at].is_open = 1;
    struct epoll_event wanted = {EPOLLIN, {.u32 = at}};
    epoll_ctl(set, EPOLL_CTL_MOD, conns[at].fd, &wanted);
}

/* Whether the connection is over. */
static int readable(int at, unsigned bits) {
    unsigned char piece[REPLY + 1];
    ssize_t got = read(conns[at].fd, piece, sizeof piece);
    if (got == -1 && wrong++ < 3)
        say("%s, and read says %s", events(bits), strerrorname_np(errno));
    for (ssize_t i = 0; i < got; i++)
        wrong += piece[i] != stream_byte(conns[at].number + conns[at].got + i);
    if (got > 0)
        conns[at].got += got;
    return got == 0;
}

static void client(void) {
    struct sockaddr_in name = ipv4("127.0.0.1", hear());
    int set = epoll_create1(0), begun = 0;
    for (; begun < AT_ONCE; begun++) {
        conns[begun].number = begun;
        begin(set, begun, &name);
    }
    while (done < CONNECTIONS) {
        struct epoll_event found[AT_ONCE];
        int count = epoll_wait(set, found, AT_ONCE, LONG_MS);
        need(count > 0, "epoll_wait of the client");
        for (int i = 0; i < count; i++) {
            int at = found[i].data.u32;
            if (!conns[at].is_open)
                opened(set, at, found[i].events);
            else if (readable(at, found[i].events)) {
                incomplete += conns[at].got != REPLY;
                close(conns[at].fd);
                done++;
                if (begun < CONNECTIONS) {
                    conns[at].number = begun++;
                    begin(set, at, &name);
                }
            }
        }
    }
    say("early %d incomplete %d wrong %d", early, incomplete, wrong);
    meet();
}
