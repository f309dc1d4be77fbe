/* pair: a connection that bash makes itself, with what its own commands write and read there. */
#include "contract.h"

static void server(void) {
    int fd = serve_one();
    char text[64] = "";
    read_all(fd, text, 12);
    write_all(fd, "first\nsecond\n", 13);
    ssize_t end = read(fd, text + 12, 1);
    say("%s then %zd", text, end);
}

static void client(void) {
    static char connection[128];
    snprintf(connection, sizeof connection, "/dev/tcp/%s/%d", host("127.0.0.1"), hear());
    setenv("CONNECTION", connection, 1);
    execlp("bash", "bash", "-c",
           "exec 3<>$CONNECTION; echo hello >&3; printf '%s\\n' world >&3; read -r a <&3;"
           "read -r b <&3; echo \"$a and $b\"; exec 3>&-; echo over", NULL);
    _exit(9);
}
