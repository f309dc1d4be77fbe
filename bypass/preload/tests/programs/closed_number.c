/* solo: calls about the number of a socket that is closed. */
#define SOLO
#include "contract.h"
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <termios.h>

static void solo(void) {
    struct stat state;
    struct statfs system;
    struct termios terminal;
    char byte;
    int file = memfd_create("file", 0);
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
    result("close", close(fd));
}
