/* pair: preadv2 and pwritev2, which at the offset -1 are readv and writev with flags, and at others for files alone. */
#include <sys/syscall.h>
#include "contract.h"

static char bytes[8];
static struct iovec pieces[2] = {{bytes, 3}, {bytes + 3, 5}};

static void server(void) {
    int fd = serve_one();
    result("nothing there", preadv2(fd, pieces, 2, -1, RWF_NOWAIT));
    tell(0);
    wait_for(fd, POLLIN);
    result("at an offset", preadv2(fd, pieces, 2, 0, 0));
    result("at a wrong one", preadv2(fd, pieces, 2, -2, 0));
    result("an unknown flag", preadv2(fd, pieces, 2, -1, 1 << 20));
    result("no pieces", preadv2(fd, pieces, 0, -1, RWF_NOWAIT));
    char room[20];
    struct iovec beyond[] = {{room, sizeof room}, {NULL, 5}};
    struct msghdr header = {.msg_iov = beyond, .msg_iovlen = 2};
    result("peek, with no address behind the last byte", recvmsg(fd, &header, MSG_PEEK));
    result("read", preadv2(fd, pieces, 1, -1, 0));
    result("read the rest", preadv2(fd, pieces + 1, 1, -1, RWF_NOWAIT | RWF_HIPRI));
    say("%.8s", bytes);
    result("by number", syscall(SYS_preadv2, fd, pieces, 2, -1L, -1L, RWF_NOWAIT));
    tell(0);
    result("waits", preadv2(fd, pieces, 2, -1, 0));
    meet();
    result("the end", preadv2(fd, pieces, 2, -1, 0));
    meet();
    int fresh = socket(AF_INET, SOCK_STREAM, 0);
    result("without a connection", preadv2(fresh, pieces, 2, -1, RWF_NOWAIT));
    result("no socket", preadv2(900, pieces, 2, -1, 0));
}

static void count_broken(int number) { say("signal %d", number == SIGPIPE); }

static void client(void) {
    int fd = dial();
    memcpy(bytes, "abcdefgh", 8);
    signal(SIGPIPE, count_broken);
    hear();
    result("write at an offset", pwritev2(fd, pieces, 2, 0, 0));
    result("write with an unknown flag", pwritev2(fd, pieces, 2, -1, 1 << 20));
    result("write", pwritev2(fd, pieces, 2, -1, RWF_NOWAIT | RWF_DSYNC));
    hear();
    result("write by number", syscall(SYS_pwritev2, fd, pieces, 1, -1L, -1L, 0));
    meet();
    shutdown(fd, SHUT_WR);
    result("write behind the end", pwritev2(fd, pieces, 1, -1, 0));
    meet();
}
