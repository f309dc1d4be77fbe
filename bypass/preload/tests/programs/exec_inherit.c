/* pair: sockets without close-on-exec are there after exec: a listener, and a connection. */
#include "contract.h"

/* The second image is this program again, with the numbers in the environment. */
__attribute__((constructor)) static void second_image(void) {
    const char *listener_text = getenv("CONTRACT_LISTENER");
    const char *connected_text = getenv("CONTRACT_CONNECTED");
    if (listener_text) {
        int fd = accept(atoi(listener_text), NULL, NULL);
        outcome("accept after exec", fd);
        result("write", send(fd, "after exec", 10, MSG_NOSIGNAL));
        exit(0);
    }
    if (connected_text) {
        char bytes[4];
        say_poll("two bytes of four", atoi(connected_text), POLLIN, 20);
        result("not waited for", recv(atoi(connected_text), bytes, 4, MSG_DONTWAIT));
        result("write after exec", send(atoi(connected_text), "hello", 5, MSG_NOSIGNAL));
        exit(0);
    }
}

static void become(const char *variable, int fd) {
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    setenv(variable, number, 1);
    execl("/proc/self/exe", "contract", "server", NULL);
    _exit(9);
}

static void server(void) {
    int status, listening = listener(4);
    int hidden = fcntl(listening, F_DUPFD_CLOEXEC, 50);
    say("cloexec %d", fcntl(hidden, F_GETFD));
    pid_t child = fork();
    if (child == 0)
        become("CONTRACT_LISTENER", listening);
    waitpid(child, &status, 0);
    say("ended %d", status);
    int fd = accept(listening, NULL, NULL);
    set_int(fd, SOL_SOCKET, SO_RCVLOWAT, 4);
    hear();
    child = fork();
    if (child == 0)
        become("CONTRACT_CONNECTED", fd);
    waitpid(child, &status, 0);
    say("ended %d", status);
    close(fd);
}

static void client(void) {
    int port = hear();
    char buffer[16] = "";
    int fd = dial_port(port);
    result("read", recv(fd, buffer, 10, MSG_WAITALL));
    say("read %s", buffer);
    memset(buffer, 0, sizeof buffer);
    fd = dial_port(port);
    write_all(fd, "ab", 2);
    tell(0);
    result("read", recv(fd, buffer, 5, MSG_WAITALL));
    say("read %s", buffer);
}
