/* Shared by the contract programs: two roles, a channel between them, and printing of results.
 *
 * A program that begins with "pair:" defines server() and client(), which run in two processes; one
 * that begins with "solo:" defines solo(). Standard input is a Unix socket to the other role: it
 * carries the port and lets both wait for each other without touching what is tested. Everything
 * printed must be the same at every run on the kernel. */
#ifndef CONTRACT_H
#define CONTRACT_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHANNEL 0
#define UNUSED __attribute__((unused))

UNUSED static void say(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
}

/* "name = value", with the error's name when the value is -1. */
UNUSED static long result(const char *name, long value) {
    if (value == -1)
        say("%s = -1 %s", name, strerrorname_np(errno));
    else
        say("%s = %ld", name, value);
    return value;
}

/* Only whether it worked, for values that may differ from run to run. */
UNUSED static long outcome(const char *name, long value) {
    if (value == -1)
        say("%s = -1 %s", name, strerrorname_np(errno));
    else
        say("%s works", name);
    return value;
}

UNUSED static void need(int condition, const char *what) {
    if (!condition) {
        say("stopped: %s: %s", what, strerror(errno));
        exit(3);
    }
}

/* The channel may be the subject of nothing, hence plain blocking calls. */
UNUSED static void tell(int value) {
    need(send(CHANNEL, &value, sizeof value, MSG_NOSIGNAL) == sizeof value, "channel send");
}

UNUSED static int hear(void) {
    int value;
    ssize_t got;
    do
        got = recv(CHANNEL, &value, sizeof value, MSG_WAITALL);
    while (got == -1 && errno == EINTR);
    need(got == sizeof value, "channel receive");
    return value;
}

/* Both roles go on together. */
UNUSED static void meet(void) {
    tell(0);
    hear();
}

/* Between hosts the server's address stands for 127.0.0.1. */
UNUSED static const char *host(const char *address) {
    const char *other = getenv("CONTRACT_ADDRESS");
    return other && strcmp(address, "127.0.0.1") == 0 ? other : address;
}

UNUSED static struct sockaddr_in ipv4(const char *address, int port) {
    address = host(address);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    need(inet_pton(AF_INET, address, &name.sin_addr) == 1, "address");
    return name;
}

UNUSED static int port_of(int fd) {
    struct sockaddr_storage name;
    socklen_t length = sizeof name;
    need(getsockname(fd, (struct sockaddr *)&name, &length) == 0, "getsockname");
    return ntohs(((struct sockaddr_in *)&name)->sin_port);
}

UNUSED static int listener_on(const char *address, int backlog) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    need(fd >= 0, "socket");
    struct sockaddr_in name = ipv4(address, 0);
    need(bind(fd, (struct sockaddr *)&name, sizeof name) == 0, "bind");
    need(listen(fd, backlog) == 0, "listen");
    return fd;
}

/* A listener on an ephemeral port of 127.0.0.1, which is sent to the other role. */
UNUSED static int listener(int backlog) {
    int fd = listener_on("127.0.0.1", backlog);
    tell(port_of(fd));
    return fd;
}

UNUSED static int dial_port(int port) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    need(fd >= 0, "socket");
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    need(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "connect");
    return fd;
}

/* As dial_port, where connections that the library leaves to the kernel are to fail (EF_NO_FAIL=0): it leaves them
 * there until the server's processes are known to accept. */
UNUSED static int dial_strictly(int port) {
    for (;;) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        need(fd >= 0, "socket");
        struct sockaddr_in name = ipv4("127.0.0.1", port);
        int failed = connect(fd, (struct sockaddr *)&name, sizeof name);
        if (!failed)
            return fd;
        need(errno == EOPNOTSUPP, "connect");
        close(fd);
        usleep(1000);
    }
}

/* Connects to the other role's listener. */
UNUSED static int dial(void) { return dial_port(hear()); }

/* Accepts one connection on a listener that is closed again. */
UNUSED static int serve_one(void) {
    int listening = listener(16);
    int fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    close(listening);
    return fd;
}

UNUSED static void read_all(int fd, void *buffer, size_t length) {
    size_t done = 0;
    while (done < length) {
        ssize_t got = read(fd, (char *)buffer + done, length - done);
        need(got > 0, "read");
        done += got;
    }
}

UNUSED static void write_all(int fd, const void *buffer, size_t length) {
    size_t done = 0;
    while (done < length) {
        ssize_t put = write(fd, (const char *)buffer + done, length - done);
        need(put > 0, "write");
        done += put;
    }
}

/* Up to so many descriptors go in one message. */
#define PASSED_MAX 4

/* Passes descriptors to another process over a Unix socket. */
UNUSED static void hand(int over, const int *fds, int count) {
    char byte = 'f', space[CMSG_SPACE(sizeof(int) * PASSED_MAX)] = "";
    struct iovec piece = {&byte, 1};
    struct msghdr message = {.msg_iov = &piece,
                             .msg_iovlen = 1,
                             .msg_control = space,
                             .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
    need(sendmsg(over, &message, 0) == 1, "sendmsg");
}

UNUSED static void take(int over, int *fds, int count) {
    char byte, space[CMSG_SPACE(sizeof(int) * PASSED_MAX)];
    struct iovec piece = {&byte, 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    need(recvmsg(over, &message, 0) == 1, "recvmsg");
    memcpy(fds, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int) * count);
}

UNUSED static void set_nonblocking(int fd) {
    need(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) == 0, "O_NONBLOCK");
}

/* The sockets of this role are handled by the kernel in every run: it starts again without the library. */
UNUSED static void stay_on_the_kernel(const char *role) {
    const char *library = getenv("LD_PRELOAD");
    if (!library || !*library)
        return;
    /* A variable that is not there would be put back. */
    setenv("LD_PRELOAD", "", 1);
    execl("/proc/self/exe", program_invocation_name, role, NULL);
    need(0, "execl");
}

/* Data that comes in on a socket of the kernel's is lost from now on, as if its host were gone. */
UNUSED static void deafen(int fd) {
    struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {1, &nothing};
    need(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0,
         "SO_ATTACH_FILTER");
}

UNUSED static void set_int(int fd, int level, int option, int value) {
    need(setsockopt(fd, level, option, &value, sizeof value) == 0, "setsockopt");
}

UNUSED static struct tcp_info tcp_info(int fd) {
    struct tcp_info info = {0};
    socklen_t length = sizeof info;
    need(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0, "TCP_INFO");
    return info;
}

/* The byte at a place of a stream; a lost, doubled or swapped piece changes the checksum. */
UNUSED static unsigned char stream_byte(uint64_t place) {
    return (unsigned char)((place * 2654435761u >> 13) ^ place);
}

UNUSED static void fill(unsigned char *buffer, size_t length, uint64_t place) {
    for (size_t i = 0; i < length; i++)
        buffer[i] = stream_byte(place + i);
}

UNUSED static uint64_t checksum(uint64_t sum, const unsigned char *buffer, size_t length) {
    for (size_t i = 0; i < length; i++)
        sum = (sum ^ buffer[i]) * 1099511628211u;
    return sum;
}

/* "IN OUT HUP" and so on; the same bits for poll and epoll. */
UNUSED static const char *events(unsigned bits) {
    static __thread char text[128];
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {{POLLIN, "IN "},   {POLLPRI, "PRI "},     {POLLOUT, "OUT "},  {POLLERR, "ERR "},
                 {POLLHUP, "HUP "}, {POLLRDHUP, "RDHUP "}, {POLLNVAL, "NVAL "}};
    text[0] = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (bits & names[i].bit)
            strcat(text, names[i].name);
    return text[0] ? text : "none";
}

/* Prints poll's result for one descriptor within a time. */
UNUSED static void say_poll(const char *name, int fd, int wanted, int timeout_ms) {
    struct pollfd one = {.fd = fd, .events = wanted};
    int count = poll(&one, 1, timeout_ms);
    if (count == -1)
        say("%s: poll -1 %s", name, strerrorname_np(errno));
    else
        say("%s: %s", name, count ? events(one.revents) : "nothing");
}

/* Long enough for a machine that stands still for a while, and only ever waited out when something
 * is wrong. */
#define LONG_S 60
#define LONG_MS (LONG_S * 1000)

UNUSED static void wait_for(int fd, int wanted) {
    struct pollfd one = {.fd = fd, .events = wanted};
    need(poll(&one, 1, LONG_MS) == 1, "wait_for");
}

/* The state of a thread, by its own number, whichever process it is of; 0 where it is over. */
UNUSED static char thread_state(pid_t thread) {
    char name[64], line[256] = "";
    snprintf(name, sizeof name, "/proc/%d/stat", thread);
    int file = open(name, O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? -1 : read(file, line, sizeof line - 1);
    need(got > 0 || errno == ENOENT || errno == ESRCH, name);
    if (file >= 0)
        close(file);
    const char *end = strrchr(line, ')');
    return end && end[1] == ' ' ? end[2] : 0;
}

/* Whether a thread sleeps, whatever it waits for. */
UNUSED static int is_asleep(pid_t thread) {
    char state = thread_state(thread);
    need(state != 0, "a thread");
    return state == 'S';
}

/* The same of one that may not wait at all. */
UNUSED static int is_asleep_or_over(pid_t thread) {
    char state = thread_state(thread);
    return state == 'S' || state == 0;
}

/* Waits until a thread that has announced itself, and then goes into a call that waits, is in there:
 * it sleeps at three looks in a row. Between announcement and call it has nothing to sleep for. */
UNUSED static void until_it_waits(const volatile pid_t *announced) {
    for (int looks = 0; looks < 3;) {
        usleep(10000);
        looks = *announced && is_asleep(*announced) ? looks + 1 : 0;
    }
}

/* A child that sends back what comes until the end; the connection is its alone. */
UNUSED static void serve_in_child(int listening, int fd) {
    char letter;
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child > 0) {
        close(fd);
        return;
    }
    close(listening);
    while (read(fd, &letter, 1) == 1)
        write_all(fd, &letter, 1);
    _exit(0);
}

/* Waits for as many children. */
UNUSED static void say_ended_well(int children) {
    int status, good = 0;
    for (int i = 0; i < children; i++) {
        need(wait(&status) > 0, "wait");
        good += status == 0;
    }
    say("children ended well %d", good);
}

UNUSED static double now_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* A clock that stands still while the machine does, or gives this process no turns: a thread counts how often it has
 * slept. A call that takes long by it has waited for something else. A forked child begins its own. */
#define NAPS_PER_S 100
static volatile int naps;

UNUSED static void *nap(void *unused) {
    for (;;) {
        usleep(1000000 / NAPS_PER_S);
        naps++;
    }
    return unused;
}

UNUSED static void begin_naps(void) {
    pthread_t thread;
    need(pthread_create(&thread, NULL, nap, NULL) == 0, "thread");
    pthread_detach(thread);
}

UNUSED static double naps_s(void) { return (double)naps / NAPS_PER_S; }

UNUSED static int so_error(int fd) {
    int error = -1;
    socklen_t length = sizeof error;
    need(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0, "SO_ERROR");
    return error;
}

UNUSED static const char *error_name(int error) { return error ? strerrorname_np(error) : "0"; }

#ifdef SOLO
static void solo(void);
int main(void) {
    solo();
    return 0;
}
#else
static void server(void);
static void client(void);
int main(int count, char **words) {
    if (count < 2)
        return 2;
    if (strcmp(words[1], "server") == 0)
        server();
    else
        client();
    return 0;
}
#endif
#endif
