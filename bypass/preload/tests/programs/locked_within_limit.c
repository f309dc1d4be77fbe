/* pair: a server without the right to lock what it likes locks its memory while a client is connected: its own memory is
 * within the limit, the segment is not. */
#include "memory.h"
#include <linux/capability.h>
#include <sys/syscall.h>

#define LIMIT (1ul << 30)

/* As a user other than root: bounded by the limit. False where it cannot be raised as far. */
static int be_bounded(void) {
    if (setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){LIMIT, LIMIT}) != 0)
        return 0;
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    need(syscall(SYS_capget, &header, data) == 0, "capget");
    data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
    need(syscall(SYS_capset, &header, data) == 0, "capset");
    return 1;
}

static void lock(const char *name, int flags) {
    unsigned char *before = untouched();
    errno = 0;
    result(name, mlockall(flags));
    say("errno %s", error_name(errno));
    unsigned char *after = untouched();
    say("locked %d, mapped later %d, segments %d", mappings(before, " lo", 1), mappings(after, " lo", 1),
        mappings(NULL, " lo", 1));
    say_resident("mapped before", before);
    say_resident("mapped after", after);
    need(munlockall() == 0, "munlockall");
}

static void server(void) {
    int fd = serve_one();
    if (!be_bounded())
        return;
    lock("MCL_CURRENT", MCL_CURRENT);
    lock("MCL_ONFAULT", MCL_CURRENT | MCL_ONFAULT);
    lock("both", MCL_CURRENT | MCL_FUTURE);
    lock("all three", MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
    unsigned char *large = mmap(NULL, LIMIT, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    need(large != MAP_FAILED, "mmap");
    result("beyond the limit", mlockall(MCL_CURRENT));
    say("locked %d, segments %d", mappings(large, " lo", 1), mappings(NULL, " lo", 1));
    close(fd);
}

static void client(void) {
    char letter;
    int fd = dial();
    say("the end %zd", read(fd, &letter, 1));
    close(fd);
}
