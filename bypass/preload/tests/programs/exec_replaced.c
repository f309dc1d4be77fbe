/* pair: the process itself becomes another program, on either side, with bytes under way. */
#include "contract.h"

__attribute__((constructor)) static void second_image(void) {
    const char *number = getenv("CONTRACT_NUMBER");
    if (!number)
        return;
    int fd = atoi(number), copy = atoi(getenv("CONTRACT_COPY"));
    char text[32] = "";
    say("nonblocking %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    result("getpeername", getpeername(fd, (struct sockaddr *)&name, &length));
    wait_for(fd, POLLIN);
    result("read", read(fd, text, 16));
    say("read %s", text);
    close(fd);
    result("write to the copy", send(copy, text, strlen(text), MSG_NOSIGNAL));
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP};
    result("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, copy, &event));
    result("epoll_wait", epoll_wait(set, &event, 1, LONG_MS));
    say("events %s", events(event.events));
    result("the end", read(copy, text, 16));
    exit(0);
}

static void become(int fd) {
    char number[16], copy[16];
    set_nonblocking(fd);
    snprintf(copy, sizeof copy, "%d", dup(fd));
    snprintf(number, sizeof number, "%d", fd);
    setenv("CONTRACT_NUMBER", number, 1);
    setenv("CONTRACT_COPY", copy, 1);
    execl("/proc/self/exe", "contract", "server", NULL);
}

static void server(void) {
    int listening = listener(16), fd = accept(listening, NULL, NULL);
    char text[16] = "";
    write_all(fd, "before exec", 11);
    read_all(fd, text, 11);
    say("back %s", text);
    shutdown(fd, SHUT_WR);
    result("the end", read(fd, text, 1));
    fd = accept(listening, NULL, NULL);
    tell(0);
    become(fd);
}

static void client(void) {
    int port = hear();
    if (fork() == 0) {
        become(dial_port(port));
        _exit(9);
    }
    int status;
    wait(&status);
    say("ended %d", status);
    int fd = dial_port(port);
    char text[16] = "";
    hear();
    usleep(50000);
    write_all(fd, "to the other", 12);
    read_all(fd, text, 12);
    say("back %s", text);
}
