/* pair: a size of buffers that the kernel refuses for lack of a capability changes nothing. */
#include "contract.h"
#include <linux/capability.h>
#include <sys/syscall.h>

static void drop_capabilities(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    need(syscall(SYS_capset, &header, none) == 0, "capset");
}

static void server(void) {
    static char much[1 << 20];
    int fd = serve_one(), size = 5000;
    long taken = 0;
    ssize_t put;
    drop_capabilities();
    result("SO_SNDBUFFORCE", setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size));
    result("SO_RCVBUFFORCE", setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size));
    set_nonblocking(fd);
    while ((put = write(fd, much, sizeof much)) > 0)
        taken += put;
    say("much is taken %d", taken > 500000);
    meet();
}

static void client(void) {
    int fd = dial();
    meet();
    close(fd);
}
