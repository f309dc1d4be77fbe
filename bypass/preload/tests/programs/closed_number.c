/* solo: calls about the number of a socket that is closed. */
#define SOLO
#include "contract.h"
#include <sys/mman.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <termios.h>

/* Made before the number is free, which they would get. */
static int file, pipe_ends[2], over[2], udp;

static void prepare(void) {
    file = memfd_create("file", 0);
    udp = socket(AF_INET, SOCK_DGRAM, 0);
    need(file >= 0 && udp >= 0 && pipe(pipe_ends) == 0 && write(pipe_ends[1], "y", 1) == 1, "files");
    need(socketpair(AF_UNIX, SOCK_DGRAM, 0, over) == 0, "socketpair");
}

/* Of two messages the second names the number. */
static void pass(int fd) {
    int both[2] = {file, fd};
    char byte = 'p', space[2][CMSG_SPACE(sizeof both)] = {""};
    struct iovec piece = {&byte, 1};
    struct mmsghdr messages[2];
    for (int i = 0; i < 2; i++) {
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &piece, .msg_iovlen = 1,
            .msg_control = space[i], .msg_controllen = CMSG_SPACE(sizeof(int) * (i + 1))};
        struct cmsghdr *header = CMSG_FIRSTHDR(&messages[i].msg_hdr);
        *header = (struct cmsghdr){CMSG_LEN(sizeof(int) * (i + 1)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(header), both, sizeof(int) * (i + 1));
    }
    result("sendmsg", sendmsg(over[0], &messages[1].msg_hdr, 0));
    result("sendmmsg", sendmmsg(over[0], messages, 2, 0));
    result("sendmmsg of it", sendmmsg(over[0], messages + 1, 1, 0));
    struct sockaddr_in name = ipv4("127.0.0.1", 9);
    messages[1].msg_hdr.msg_name = &name;
    messages[1].msg_hdr.msg_namelen = sizeof name;
    outcome("sendmsg over UDP", sendmsg(udp, &messages[1].msg_hdr, MSG_DONTWAIT));
}

static void by_pipes(int fd) {
    char byte = 'x';
    struct iovec piece = {&byte, 1};
    result("tee from it", tee(fd, pipe_ends[1], 1, SPLICE_F_NONBLOCK));
    result("tee to it", tee(pipe_ends[0], fd, 1, SPLICE_F_NONBLOCK));
    result("tee by number", syscall(SYS_tee, fd, pipe_ends[1], 1L, SPLICE_F_NONBLOCK));
    result("vmsplice", vmsplice(fd, &piece, 1, 0));
    result("splice from it", splice(fd, NULL, pipe_ends[1], NULL, 1, SPLICE_F_NONBLOCK));
    result("splice to it", splice(pipe_ends[0], NULL, fd, NULL, 1, SPLICE_F_NONBLOCK));
    result("splice of nothing", splice(fd, NULL, pipe_ends[1], NULL, 0, 0));
    result("splice to a file", splice(fd, NULL, file, NULL, 1, 0));
    result("sendfile to it", sendfile(fd, file, NULL, 1));
}

static void by_path(int fd) {
    struct stat state;
    struct statx more;
    result("fstatat of it", fstatat(fd, "", &state, AT_EMPTY_PATH));
    result("fstatat below it", fstatat(fd, "x", &state, 0));
    result("fstatat elsewhere", fstatat(fd, "/", &state, 0));
    result("fstatat of nothing", fstatat(fd, "", &state, 0));
    result("statx of it", statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &more));
    result("statx elsewhere", statx(fd, "/", 0, STATX_SIZE, &more));
    result("statx by number", syscall(SYS_statx, fd, "", AT_EMPTY_PATH, STATX_SIZE, &more));
}

static void solo(void) {
    struct stat state;
    struct statfs system;
    struct termios terminal;
    char byte;
    prepare();
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    result("open", fstat(fd, &state));
    result("lseek of a socket", lseek(fd, 0, SEEK_CUR));
    result("fsync of a socket", fsync(fd));
    result("ftruncate of a socket", ftruncate(fd, 0));
    result("isatty of a socket", isatty(fd));
    close(fd);
    result("fstat", fstat(fd, &state));
    result("fstat by number", syscall(SYS_fstat, fd, &state));
    result("lseek", lseek(fd, 0, SEEK_CUR));
    result("lseek by number", syscall(SYS_lseek, fd, 0L, SEEK_CUR));
    result("fsync", fsync(fd));
    result("fdatasync", fdatasync(fd));
    result("ftruncate", ftruncate(fd, 0));
    result("fchmod", fchmod(fd, 0600));
    result("fchown", fchown(fd, -1, -1));
    result("fstatfs", fstatfs(fd, &system));
    result("tcgetattr", tcgetattr(fd, &terminal));
    errno = 0;
    say("isatty %d %s", isatty(fd), strerrorname_np(errno));
    result("pread", pread(fd, &byte, 1, 0));
    result("recv of errors", recv(fd, &byte, 1, MSG_ERRQUEUE | MSG_DONTWAIT));
    result("sendfile", sendfile(file, fd, NULL, 1));
    result("flock", flock(fd, LOCK_SH));
    result("flock by number", syscall(SYS_flock, fd, LOCK_SH));
    by_path(fd);
    by_pipes(fd);
    pass(fd);
    result("close", close(fd));
}
