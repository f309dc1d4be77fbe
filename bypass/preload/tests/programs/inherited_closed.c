/* pair: sockets that another process has inherited are closed; new ones belong to the process that makes them. */
#include "contract.h"
#include <spawn.h>

#define SERVERS 4

static int ports[SERVERS];

/* Reads to the end of one connection; who holds it besides its client would keep it open. */
static void say_stream(const char *name, int listening) {
    char text[32] = "";
    size_t length = 0;
    wait_for(listening, POLLIN);
    int fd = accept(listening, NULL, NULL);
    for (;;) {
        struct pollfd one = {.fd = fd, .events = POLLIN};
        if (poll(&one, 1, LONG_MS) != 1) {
            say("%s: %s, and no end", name, text);
            break;
        }
        ssize_t got = read(fd, text + length, sizeof text - 1 - length);
        if (got <= 0) {
            say("%s: %s, then %zd", name, text, got);
            break;
        }
        length += got;
    }
    close(fd);
}

static void server(void) {
    stay_on_the_kernel("server");
    int listening[SERVERS];
    for (int i = 0; i < SERVERS; i++)
        listening[i] = listener(4);
    say_stream("of the child", listening[1]);
    say_stream("of the parent", listening[0]);
    say_stream("next to a spawned one", listening[2]);
    tell(0);
    say_stream("after options", listening[3]);
}

static void send_to(int port, int fd, const char *text) {
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    if (result("connect", connect(fd, (struct sockaddr *)&name, sizeof name)) == 0)
        result("write", write(fd, text, strlen(text)));
}

static void next(int pipe_end) { need(write(pipe_end, "n", 1) == 1, "pipe"); }

static void await(int pipe_end) {
    char byte;
    need(read(pipe_end, &byte, 1) == 1, "pipe");
}

static void end_of(pid_t child) {
    int status;
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("child ended %d", status);
}

static int new_socket(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    need(fd >= 0, "socket");
    return fd;
}

/* A connection that both have closed, and one more socket of each. */
static void closed_by_both(int listening) {
    int down[2], up[2], inherited = dial_port(port_of(listening));
    need(pipe(down) == 0 && pipe(up) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        await(down[0]);
        close(inherited);
        int own = new_socket();
        send_to(ports[1], own, "child");
        close(own);
        next(up[1]);
        _exit(0);
    }
    close(inherited);
    int own = new_socket();
    send_to(ports[0], own, "parent");
    next(down[1]);
    await(up[0]);
    end_of(child);
    close(own);
    for (int i = 0; i < 2; i++) {
        close(down[i]);
        close(up[i]);
    }
}

/* The child binds what both have; the parent's next socket is not bound. */
static void bound_by_child(void) {
    int inherited = new_socket();
    pid_t child = fork();
    if (child == 0) {
        struct sockaddr_in name = ipv4("127.0.0.2", 0);
        result("child binds", bind(inherited, (struct sockaddr *)&name, sizeof name));
        _exit(0);
    }
    end_of(child);
    close(inherited);
    int own = new_socket();
    say("a new socket has port %s", port_of(own) ? "of another" : "0");
    close(own);
}

static pid_t spawn_reader(int fd) {
    extern char **environ;
    char *words[] = {"sh", "-c", "read line", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, 0);
    pid_t child;
    need(posix_spawn(&child, "/bin/sh", &actions, NULL, words, environ) == 0, "posix_spawn");
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

static void spawned(int listening) {
    int line[2], inherited = dial_port(port_of(listening));
    need(pipe2(line, O_CLOEXEC) == 0, "pipe");
    pid_t child = spawn_reader(line[0]);
    close(inherited);
    int own = new_socket();
    send_to(ports[2], own, "spawner");
    close(own);
    hear();
    close(line[1]);
    need(waitpid(child, NULL, 0) == child, "waitpid");
}

static void with_options(void) {
    int line[2], with = new_socket();
    need(pipe2(line, O_CLOEXEC) == 0, "pipe");
    set_int(with, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_nonblocking(with);
    pid_t child = spawn_reader(line[0]);
    close(line[1]);
    need(waitpid(child, NULL, 0) == child, "waitpid");
    close(with);
    int own = new_socket(), value = -1;
    socklen_t length = sizeof value;
    send_to(ports[3], own, "options");
    need(getsockopt(own, SOL_SOCKET, SO_KEEPALIVE, &value, &length) == 0, "SO_KEEPALIVE");
    say("SO_KEEPALIVE %d, flags %d", value, fcntl(own, F_GETFL) & O_NONBLOCK);
    close(own);
}

static void client(void) {
    for (int i = 0; i < SERVERS; i++)
        ports[i] = hear();
    int listening = listener_on("127.0.0.1", 16);
    closed_by_both(listening);
    bound_by_child();
    spawned(listening);
    with_options();
}
