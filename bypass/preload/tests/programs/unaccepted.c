/* pair: what a client does on a connection that stands, before the server accepts it. */
#include "contract.h"
#include <sys/mman.h>
#include <sys/sendfile.h>

#define MORE 5

static struct sockaddr_in server_name;

/* Each returns whether the connection is open still. */

static int looks(int fd) {
    say_poll("poll", fd, POLLIN | POLLOUT | POLLRDHUP, 0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET};
    int set = epoll_create1(0), count = 0;
    need(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl");
    result("epoll_wait", epoll_wait(set, &event, 1, 0));
    say("%s", events(event.events));
    close(set);
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    result("getpeername", getpeername(fd, (struct sockaddr *)&name, &length));
    say("SO_ERROR %s, state %u", error_name(so_error(fd)), tcp_info(fd).tcpi_state);
    result("connect again", connect(fd, (struct sockaddr *)&server_name, sizeof server_name));
    char byte;
    result("recv", recv(fd, &byte, 1, MSG_DONTWAIT));
    result("peek", recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK));
    result("FIONREAD", ioctl(fd, FIONREAD, &count));
    say("readable %d", count);
    close(fd);
    return 0;
}

static int writes(int fd) {
    result("write", write(fd, "a", 1));
    close(fd);
    return 0;
}

static int writes_without_waiting(int fd) {
    result("send", send(fd, "b", 1, MSG_DONTWAIT));
    set_nonblocking(fd);
    result("write", write(fd, "c", 1));
    close(fd);
    return 0;
}

static int closes(int fd) {
    close(fd);
    return 0;
}

static int resets(int fd) {
    struct linger linger = {1, 0};
    need(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger) == 0, "SO_LINGER");
    close(fd);
    return 0;
}

static int shuts_writing(int fd) {
    result("shutdown", shutdown(fd, SHUT_WR));
    say_poll("poll", fd, POLLIN | POLLOUT, 0);
    result("send", send(fd, "d", 1, MSG_NOSIGNAL));
    return 1;
}

static int shuts_reading(int fd) {
    char byte;
    result("shutdown", shutdown(fd, SHUT_RD));
    result("recv", recv(fd, &byte, 1, MSG_DONTWAIT));
    result("read", read(fd, &byte, 1));
    result("write", write(fd, "e", 1));
    close(fd);
    return 0;
}

static int sends_a_file(int fd) {
    int file = memfd_create("file", 0);
    write_all(file, "f", 1);
    off_t from = 0;
    result("sendfile", sendfile(fd, file, &from, 1));
    close(file);
    close(fd);
    return 0;
}

static int splices(int fd) {
    int ends[2];
    need(pipe(ends) == 0, "pipe");
    write_all(ends[1], "g", 1);
    result("splice", splice(ends[0], NULL, fd, NULL, 1, SPLICE_F_NONBLOCK));
    close(ends[0]);
    close(ends[1]);
    close(fd);
    return 0;
}

static int duplicates(int fd) {
    int other = dup(fd);
    close(fd);
    result("write", write(other, "h", 1));
    close(other);
    return 0;
}

static void say_child(pid_t child) {
    int status;
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("child ended by signal %d, with %d", WTERMSIG(status), WEXITSTATUS(status));
}

/* The child alone has the connection, and writes before it ends. */
static int forks(int fd) {
    int gate[2];
    need(pipe(gate) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        char byte;
        read_all(gate[0], &byte, 1);
        _exit(write(fd, "i", 1) != 1);
    }
    close(fd);
    write_all(gate[1], "x", 1);
    say_child(child);
    close(gate[0]);
    close(gate[1]);
    return 0;
}

static int is_killed(int fd, const char *bytes) {
    pid_t child = fork();
    if (child == 0) {
        write_all(fd, bytes, strlen(bytes));
        raise(SIGKILL);
    }
    close(fd);
    say_child(child);
    return 0;
}

static int is_killed_idle(int fd) { return is_killed(fd, ""); }

static int is_killed_after_write(int fd) { return is_killed(fd, "j"); }

static int is_passed(int fd) {
    int pair[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    pid_t child = fork();
    if (child == 0) {
        int taken;
        close(fd);
        take(pair[1], &taken, 1);
        _exit(write(taken, "k", 1) != 1);
    }
    hand(pair[0], &fd, 1);
    close(fd);
    say_child(child);
    close(pair[0]);
    close(pair[1]);
    return 0;
}

static int is_inherited(int fd) {
    pid_t child = fork();
    if (child == 0) {
        dup2(fd, 1);
        execlp("printf", "printf", "l", NULL);
        _exit(9);
    }
    close(fd);
    say_child(child);
    return 0;
}

static volatile pid_t reader;
static pthread_t reading;

static void *read_it(void *at) {
    int fd = *(int *)at;
    char byte = 0;
    reader = gettid();
    result("blocked read", read(fd, &byte, 1));
    return NULL;
}

/* The server answers once it has seen the end. */
static int reads(int fd) {
    static int of_reader;
    of_reader = fd;
    reader = 0;
    need(pthread_create(&reading, NULL, read_it, &of_reader) == 0, "pthread_create");
    until_it_waits(&reader);
    result("shutdown", shutdown(fd, SHUT_WR));
    return 2;
}

static int reads_for_a_while(int fd) {
    char byte;
    struct timeval while_ = {0, 20000};
    need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &while_, sizeof while_) == 0, "SO_RCVTIMEO");
    result("read", read(fd, &byte, 1));
    result("write", write(fd, "m", 1));
    close(fd);
    return 0;
}

static void ignore(int number) { (void)number; }

static int is_interrupted(int fd) {
    struct sigaction action = {.sa_handler = ignore};
    struct itimerval soon = {.it_interval = {0, 20000}, .it_value = {0, 20000}}, never = {0};
    char byte;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    result("read", read(fd, &byte, 1));
    setitimer(ITIMER_REAL, &never, NULL);
    close(fd);
    return 0;
}

static int others[MORE];

static int connects_more(int fd) {
    for (int i = 0; i < MORE; i++) {
        others[i] = socket(AF_INET, SOCK_STREAM, 0);
        result("connect", connect(others[i], (struct sockaddr *)&server_name, sizeof server_name));
    }
    for (int i = 0; i < MORE; i++) {
        result("write", write(others[i], "n", 1));
        close(others[i]);
    }
    close(fd);
    return 0;
}

static const struct {
    const char *name;
    int (*act)(int fd);
    int more;
} rounds[] = {
    {"looks", looks, 0},
    {"writes", writes, 0},
    {"writes without waiting", writes_without_waiting, 0},
    {"closes", closes, 0},
    {"resets", resets, 0},
    {"shuts writing", shuts_writing, 0},
    {"shuts reading", shuts_reading, 0},
    {"sends a file", sends_a_file, 0},
    {"splices", splices, 0},
    {"duplicates", duplicates, 0},
    {"forks", forks, 0},
    {"is killed", is_killed_idle, 0},
    {"is killed after a write", is_killed_after_write, 0},
    {"is passed", is_passed, 0},
    {"is inherited", is_inherited, 0},
    {"reads", reads, 0},
    {"reads for a while", reads_for_a_while, 0},
    {"is interrupted", is_interrupted, 0},
    {"connects more", connects_more, MORE},
};
#define ROUNDS (int)(sizeof rounds / sizeof *rounds)

/* Says what a client sends until its end, and answers. */
static void serve(int listening) {
    char bytes[8] = "";
    size_t got = 0;
    ssize_t more;
    int fd = accept(listening, NULL, NULL);
    need(fd >= 0, "accept");
    while ((more = read(fd, bytes + got, sizeof bytes - 1 - got)) > 0)
        got += more;
    say("\"%s\", then %s", bytes, more ? strerrorname_np(errno) : "the end");
    send(fd, "s", 1, MSG_NOSIGNAL);
    close(fd);
}

static void server(void) {
    for (int i = 0; i < ROUNDS; i++) {
        say("%s", rounds[i].name);
        int listening = listener(16);
        int first = accept(listening, NULL, NULL);
        need(first >= 0, "accept");
        write_all(first, "f", 1);
        hear();
        for (int pending = 1 + rounds[i].more; pending > 0; pending--)
            serve(listening);
        close(first);
        close(listening);
        meet();
    }
}

static void client(void) {
    for (int i = 0; i < ROUNDS; i++) {
        char byte;
        int port = hear(), first = dial_port(port);
        say("%s", rounds[i].name);
        /* From its first accept on the server is known to accept. */
        read_all(first, &byte, 1);
        server_name = ipv4("127.0.0.1", port);
        int fd = dial_port(port), open = rounds[i].act(fd);
        tell(0);
        if (open == 2)
            pthread_join(reading, NULL);
        if (open == 1)
            result("the answer", read(fd, &byte, 1));
        if (open)
            result("its end", read(fd, &byte, 1));
        if (open)
            close(fd);
        close(first);
        meet();
    }
}
