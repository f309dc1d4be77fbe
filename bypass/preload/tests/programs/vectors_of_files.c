/* solo: preadv2 and pwritev2 at the offset -1 on files, whose flags are kept. */
#define SOLO
#include "contract.h"
#include <sys/syscall.h>

#ifndef RWF_NOAPPEND
#define RWF_NOAPPEND 0x20
#endif

/* Where the two bytes of a write have come to in "abc", and where the file is then. */
static void written(const char *how, int open_flags, int flags, int by_number) {
    char path[] = "/tmp/vectorsXXXXXX", bytes[8] = "";
    struct iovec piece = {"de", 2};
    int made = mkstemp(path), fd = open(path, O_RDWR | open_flags);
    need(made >= 0 && fd >= 0 && write(fd, "abc", 3) == 3 && lseek(fd, 0, SEEK_SET) == 0, "a file");
    result(how, by_number ? syscall(SYS_pwritev2, fd, &piece, 1, -1L, -1L, flags) : pwritev2(fd, &piece, 1, -1, flags));
    need(pread(fd, bytes, 7, 0) > 0, "pread");
    say("%s at %ld", bytes, (long)lseek(fd, 0, SEEK_CUR));
    unlink(path);
    close(made);
    close(fd);
}

static void solo(void) {
    char bytes[4];
    struct iovec piece = {bytes, 4};
    int null = open("/dev/null", O_RDWR), ends[2];
    written("without flags", 0, 0, 0);
    written("append", 0, RWF_APPEND, 0);
    written("append by number", 0, RWF_APPEND, 1);
    written("append and wait for the disk", 0, RWF_APPEND | RWF_DSYNC | RWF_SYNC, 0);
    written("do not append", O_APPEND, RWF_NOAPPEND, 0);
    written("an unknown flag", 0, 1 << 20, 0);
    result("two that exclude each other", pwritev2(null, &piece, 1, -1, RWF_APPEND | RWF_NOAPPEND));
    result("read with a flag of writes", preadv2(null, &piece, 1, -1, RWF_APPEND));
    result("read with an unknown flag", preadv2(null, &piece, 1, -1, 1 << 20));
    need(pipe(ends) == 0 && write(ends[1], "abcd", 4) == 4, "pipe");
    result("from a pipe", preadv2(ends[0], &piece, 1, -1, RWF_NOWAIT));
    result("from an empty pipe", preadv2(ends[0], &piece, 1, -1, RWF_NOWAIT));
    result("no file", pwritev2(900, &piece, 1, -1, RWF_APPEND));
}
