/* pair: control parts of messages that a stream knows, passes over, or refuses; on a connection and on a Unix
 * socket. */
#include "contract.h"
#include <sys/mman.h>

#define SPACE 64

/* One part behind which nothing is mapped: a wrong length must not be believed. */
static char *space_before_nothing(void) {
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(pages != MAP_FAILED && munmap(pages + 4096, 4096) == 0, "pages");
    return pages + 4096 - SPACE;
}

static ssize_t send_control(int fd, void *control, size_t size) {
    char letter = 'x';
    struct iovec piece = {&letter, 1};
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = size};
    return sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void one_part(const char *name, int fd, int level, int type, size_t length, size_t size) {
    char *space = space_before_nothing(), line[128];
    memset(space, 0, SPACE);
    struct cmsghdr head = {.cmsg_len = length, .cmsg_level = level, .cmsg_type = type};
    memcpy(space, &head, sizeof head);
    snprintf(line, sizeof line, "%s, %zu of %zu", name, length, size);
    result(line, send_control(fd, space, size));
}

static void lengths(const char *name, int fd, int level, int type) {
    static const size_t all[] = {0, 8, 15, 16, 17, 20, 24, 64, 65, 1 << 20, SIZE_MAX - 3, SIZE_MAX};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        one_part(name, fd, level, type, all[i], SPACE);
}

static void server(void) {
    int fd = serve_one(), pair[2];
    lengths("of another level", fd, IPPROTO_IP, 77);
    one_part("too short for a part", fd, SOL_SOCKET, 77, 64, 8);
    one_part("unknown", fd, SOL_SOCKET, 77, 20, 24);
    one_part("credentials", fd, SOL_SOCKET, SCM_CREDENTIALS, 28, 32);
    one_part("descriptors", fd, SOL_SOCKET, SCM_RIGHTS, 20, 24);
    one_part("descriptors, cut", fd, SOL_SOCKET, SCM_RIGHTS, 40, 24);
    result("no control, but a size", send_control(fd, NULL, 24));
    result("a huge size", send_control(fd, space_before_nothing(), (size_t)1 << 40));
    struct msghdr plain = {0};
    result("nothing at all", sendmsg(fd, &plain, MSG_NOSIGNAL));
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    lengths("of a Unix socket", pair[0], IPPROTO_IP, 77);
    /* Lengths of no whole descriptor are rounded down; none of these are open. */
    static const size_t rights[] = {8, 65, 1 << 20, SIZE_MAX};
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++)
        one_part("descriptors over a Unix socket", pair[0], SOL_SOCKET, SCM_RIGHTS, rights[i], SPACE);
    close(fd);
}

static void client(void) {
    int fd = dial(), sum = 0;
    char letter;
    while (read(fd, &letter, 1) == 1)
        sum++;
    say("%d came", sum);
}
