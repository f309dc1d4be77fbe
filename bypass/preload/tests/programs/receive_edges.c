/* pair: recvmmsg that waits for one message or for a time, looks that copy nothing, what a message's flags say. */
#include "contract.h"

static char letters[4][8];
static struct iovec pieces[4];
static struct mmsghdr messages[4];

static void prepare(size_t length) {
    for (int i = 0; i < 4; i++) {
        pieces[i] = (struct iovec){letters[i], length};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &pieces[i], .msg_iovlen = 1}};
    }
}

static void go_on(int signal) { (void)signal; }

#define TIME_MS 300

static volatile pid_t announced;

/* Asks for the next message when the time is over that recvmmsg has: it looks at that as the message comes. */
static void *ask_late(void *unused) {
    until_it_waits(&announced);
    usleep((TIME_MS + 100) * 1000);
    tell(0);
    return unused;
}

/* One message is there, the other comes late. */
static void within_a_time(int fd) {
    struct timespec time = {.tv_nsec = TIME_MS * 1000000};
    pthread_t thread;
    tell(0);
    wait_for(fd, POLLIN);
    announced = gettid();
    need(pthread_create(&thread, NULL, ask_late, NULL) == 0, "thread");
    result("within a time", recvmmsg(fd, messages, 4, 0, &time));
    say("left %ld", (long)time.tv_sec);
    pthread_join(thread, NULL);
}

static void server(void) {
    int fd = serve_one();
    prepare(2);
    result("waits for one", recvmmsg(fd, messages, 4, MSG_WAITFORONE, NULL));
    say("of %u bytes", messages[0].msg_len);
    within_a_time(fd);
    tell(0);
    wait_for(fd, POLLIN);
    usleep(100000);
    result("look at how much", recv(fd, NULL, 100, MSG_PEEK | MSG_TRUNC));
    result("of all", recv(fd, NULL, 3, MSG_PEEK | MSG_TRUNC | MSG_WAITALL));
    result("take it", recv(fd, NULL, 100, MSG_TRUNC));
    struct sigaction restart = {.sa_handler = go_on, .sa_flags = SA_RESTART};
    struct itimerval soon = {.it_value.tv_usec = 50000};
    sigaction(SIGALRM, &restart, NULL);
    setitimer(ITIMER_REAL, &soon, NULL);
    tell(0);
    result("look for all next to a handler", recv(fd, letters[0], 3, MSG_PEEK | MSG_WAITALL));
    need(recv(fd, letters[0], 3, MSG_WAITALL) == 3, "recv");
    tell(0);
    wait_for(fd, POLLPRI);
    prepare(1);
    result("urgent", recvmsg(fd, &messages[0].msg_hdr, MSG_OOB));
    say("flags say so: %d", (messages[0].msg_hdr.msg_flags & MSG_OOB) != 0);
    messages[0].msg_hdr.msg_namelen = 77;
    result("a byte", recvmsg(fd, &messages[0].msg_hdr, MSG_CMSG_CLOEXEC));
    say("flags %x, name %u", messages[0].msg_hdr.msg_flags, messages[0].msg_hdr.msg_namelen);
    struct sockaddr_storage name;
    for (socklen_t length = 8; length <= 32; length += 8) {
        socklen_t now = length;
        result("SO_PEERNAME", getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &name, &now));
    }
    meet();
}

static void client(void) {
    int fd = dial();
    write_all(fd, "ab", 2);
    hear();
    write_all(fd, "cd", 2);
    hear();
    write_all(fd, "ef", 2);
    hear();
    write_all(fd, "ghijk", 5);
    hear();
    usleep(300000);
    write_all(fd, "lmn", 3);
    hear();
    need(send(fd, "!", 1, MSG_OOB) == 1 && send(fd, "o", 1, 0) == 1, "urgent");
    meet();
}
