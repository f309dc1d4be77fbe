/* pair: calls that are meant for files, and odd arguments of those for sockets, on a connection. */
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <termios.h>
#include "contract.h"

static void as_a_file(int fd) {
    char bytes[8] = "12345678";
    struct iovec piece = {bytes, 8};
    struct statfs system;
    struct termios terminal;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    result("lseek", lseek(fd, 0, SEEK_CUR));
    result("pread", pread(fd, bytes, 8, 0));
    result("pwrite", pwrite(fd, bytes, 8, 0));
    result("preadv", preadv(fd, &piece, 1, 0));
    result("pwritev", pwritev(fd, &piece, 1, 0));
    result("ftruncate", ftruncate(fd, 0));
    result("fallocate", fallocate(fd, 0, 0, 1));
    result("fsync", fsync(fd));
    result("fdatasync", fdatasync(fd));
    result("posix_fadvise", posix_fadvise(fd, 0, 0, 0));
    result("flock", flock(fd, LOCK_EX | LOCK_NB));
    result("F_SETLK", fcntl(fd, F_SETLK, &lock));
    result("F_GETPIPE_SZ", fcntl(fd, F_GETPIPE_SZ));
    result("F_GET_SEALS", fcntl(fd, F_GET_SEALS));
    result("F_GETLEASE", fcntl(fd, F_GETLEASE));
    result("an unknown command", fcntl(fd, 9999));
    outcome("mmap", (long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0));
    result("tcgetattr", tcgetattr(fd, &terminal));
    result("fstatfs", fstatfs(fd, &system));
    result("fgetxattr", fgetxattr(fd, "user.none", bytes, 8));
    result("fchmod", fchmod(fd, 0600));
    result("fchdir", fchdir(fd));
    result("an unknown ioctl", ioctl(fd, 0x1234567, bytes));
}

static void between(int fd) {
    int file = memfd_create("file", 0), pair[2];
    need(pipe(pair) == 0 && ftruncate(file, 100) == 0, "descriptors");
    result("sendfile from a connection", sendfile(file, fd, NULL, 8));
    result("sendfile to itself", sendfile(fd, fd, NULL, 8));
    result("copy_file_range", copy_file_range(file, NULL, fd, NULL, 8, 0));
    result("tee", tee(fd, pair[1], 8, SPLICE_F_NONBLOCK));
    result("vmsplice", vmsplice(fd, &(struct iovec){"x", 1}, 1, 0));
    result("splice of nothing", splice(fd, NULL, pair[1], NULL, 0, 0));
    result("splice without a pipe", splice(fd, NULL, file, NULL, 8, 0));
    loff_t place = 0;
    result("splice with a place", splice(fd, &place, pair[1], NULL, 8, SPLICE_F_NONBLOCK));
    set_nonblocking(fd);
    result("splice with nothing there", splice(fd, NULL, pair[1], NULL, 8, 0));
    need(fcntl(fd, F_SETFL, O_RDWR) == 0, "blocking");
    /* The flag is about the pipe; a connection is waited for. */
    struct timeval time = {0, 200000}, for_ever = {0, 0};
    need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0, "SO_RCVTIMEO");
    double before = now_s();
    result("the same, waiting", splice(fd, NULL, pair[1], NULL, 8, SPLICE_F_NONBLOCK));
    say("has waited %d", now_s() - before > 0.15);
    need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &for_ever, sizeof time) == 0, "SO_RCVTIMEO");
    off_t offset = 90;
    result("sendfile beyond the end", sendfile(fd, file, &offset, 100));
    say("offset %ld", (long)offset);
    result("sendfile at the end", sendfile(fd, file, &offset, 100));
    need(ftruncate(file, 10) == 0, "ftruncate");
    result("sendfile of what is gone", sendfile(fd, file, &offset, 100));
    offset = -1;
    result("sendfile before the start", sendfile(fd, file, &offset, 100));
    result("sendfile of nothing", sendfile(fd, file, NULL, 0));
}

static void odd_pieces(int fd) {
    char bytes[8] = "abcdefgh";
    struct iovec none = {NULL, 0}, many[1025];
    for (int i = 0; i < 1025; i++)
        many[i] = (struct iovec){bytes, 0};
    result("read of nothing", read(fd, NULL, 0));
    result("write of nothing", write(fd, NULL, 0));
    result("readv of no pieces", readv(fd, NULL, 0));
    result("readv of an empty one", readv(fd, &none, 1));
    result("readv of 1024 empty ones", readv(fd, many, 1024));
    result("readv of 1025", readv(fd, many, 1025));
    result("readv of -1", readv(fd, many, -1));
    result("writev of 1025", writev(fd, many, 1025));
    struct msghdr message = {.msg_iov = many, .msg_iovlen = 1025};
    result("sendmsg of 1025", sendmsg(fd, &message, 0));
    message = (struct msghdr){0};
    result("sendmsg of nothing", sendmsg(fd, &message, MSG_NOSIGNAL));
    message.msg_namelen = -1;
    result("sendmsg, a length without a name", sendmsg(fd, &message, MSG_NOSIGNAL));
    message.msg_name = bytes;
    result("sendmsg to a name of negative length", sendmsg(fd, &message, MSG_NOSIGNAL));
    result("recvmsg into one", recvmsg(fd, &message, MSG_DONTWAIT));
    message = (struct msghdr){.msg_name = (void *)8, .msg_namelen = 16};
    result("sendmsg to a name without memory", sendmsg(fd, &message, MSG_NOSIGNAL));
    message.msg_namelen = 0;
    result("the same, without a length", sendmsg(fd, &message, MSG_NOSIGNAL));
    result("MSG_ERRQUEUE", recv(fd, bytes, 8, MSG_ERRQUEUE));
    result("MSG_ERRQUEUE|MSG_DONTWAIT", recv(fd, bytes, 8, MSG_ERRQUEUE | MSG_DONTWAIT));
}

static void with_names(int fd, int port) {
    char bytes[8];
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    socklen_t length = sizeof name;
    struct iovec piece = {bytes, 4};
    wait_for(fd, POLLIN);
    result("recvfrom", recvfrom(fd, bytes, 4, 0, (struct sockaddr *)&name, &length));
    say("length of its name %u", length);
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_name = &name, .msg_namelen = sizeof name, .msg_flags = -1};
    result("recvmsg", recvmsg(fd, &message, 0));
    say("length of its name %u, flags %d", message.msg_namelen, message.msg_flags);
    name = ipv4("127.0.0.1", port);
    result("sendto", sendto(fd, "1234", 4, 0, (struct sockaddr *)&name, sizeof name));
    result("sendto a short name", sendto(fd, "1234", 4, 0, (struct sockaddr *)&name, 2));
    struct mmsghdr both[2] = {{{.msg_iov = &piece, .msg_iovlen = 1}, 0},
                              {{.msg_iov = &piece, .msg_iovlen = 1}, 0}};
    struct timespec time = {0, 0};
    result("recvmmsg of one that is there", recvmmsg(fd, both, 2, MSG_DONTWAIT, &time));
    say("bytes %u", both[0].msg_len);
    result("recvmmsg of none", recvmmsg(fd, both, 0, MSG_DONTWAIT, NULL));
    time.tv_nsec = -1;
    result("recvmmsg with a bad time", recvmmsg(fd, both, 2, MSG_DONTWAIT, &time));
    length = 0;
    result("getpeername without room", getpeername(fd, (struct sockaddr *)&name, &length));
    say("length %u", length);
    length = 3;
    result("getsockname with little", getsockname(fd, (struct sockaddr *)&name, &length));
    say("length %u", length);
    length = -1;
    result("getsockname with less than none", getsockname(fd, (struct sockaddr *)&name, &length));
}

static void server(void) {
    int fd = serve_one();
    write_all(fd, "abcdefghijkl", 12);
    meet();
    char byte;
    long count = 0;
    while (read(fd, &byte, 1) == 1)
        count++;
    say("came %ld", count);
}

static void client(void) {
    int port = hear(), fd = dial_port(port);
    with_names(fd, port);
    meet();
    as_a_file(fd);
    between(fd);
    odd_pieces(fd);
}
