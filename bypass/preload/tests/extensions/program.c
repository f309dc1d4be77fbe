/* Uses every call of onload/extensions.h, on sockets of its own, and prints the answers. */
#define SOLO
#include "../programs/contract.h"
#include <onload/extensions.h>

/* The answer about a descriptor; the stack must be this process. */
static void say_stat(const char *name, int fd) {
    struct onload_stat stat = {-1, NULL, -1, -1};
    int answer = onload_fd_stat(fd, &stat);
    int is_right = stat.stack_id == getpid() && stat.endpoint_id == fd && stat.endpoint_state >= 0 && !stat.stack_name;
    say("%s: %s", name, answer == 0 ? "the kernel's" : answer == 1 && is_right ? "accelerated" : "wrong");
}

static void *say_new_socket(void *name) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    need(fd >= 0, "socket");
    say_stat(name, fd);
    close(fd);
    return NULL;
}

static void say_new_socket_of_thread(void) {
    pthread_t thread;
    need(pthread_create(&thread, NULL, say_new_socket, "a new socket of another thread") == 0, "thread");
    pthread_join(thread, NULL);
}

static void say_refused(const char *name, int scope) {
    errno = 0;
    int answer = onload_set_stackname(ONLOAD_THIS_THREAD, scope, "mine");
    say("%s %d %s", name, answer, error_name(errno));
}

static void choose_stacks(void) {
    const char *new_socket = "a new socket";
    say("save %d", onload_stackname_save());
    say("not accelerated %d", onload_set_stackname(ONLOAD_THIS_THREAD, ONLOAD_SCOPE_PROCESS, ONLOAD_DONT_ACCELERATE));
    say_new_socket((void *)new_socket);
    say_new_socket_of_thread();
    say("restore %d", onload_stackname_restore());
    say_new_socket((void *)new_socket);
    say("all threads %d", onload_set_stackname(ONLOAD_ALL_THREADS, ONLOAD_SCOPE_GLOBAL, ONLOAD_DONT_ACCELERATE));
    say_new_socket_of_thread();
    say_new_socket((void *)new_socket);
    say("save %d", onload_stackname_save());
    say("a name %d", onload_set_stackname(ONLOAD_THIS_THREAD, ONLOAD_SCOPE_THREAD, "mine"));
    say_new_socket((void *)new_socket);
    say("no change %d", onload_set_stackname(ONLOAD_ALL_THREADS, ONLOAD_SCOPE_NOCHANGE, ""));
    say_new_socket((void *)new_socket);
    say_new_socket_of_thread();
    say("save %d", onload_stackname_save());
    say("all threads again %d", onload_set_stackname(ONLOAD_ALL_THREADS, ONLOAD_SCOPE_GLOBAL, "mine"));
    say_new_socket_of_thread();
    say("restore twice %d %d", onload_stackname_restore(), onload_stackname_restore());
    say_new_socket_of_thread();
    say("nothing kept %d", onload_stackname_restore());
    say_refused("no change of this thread", ONLOAD_SCOPE_NOCHANGE);
    say_refused("a wrong scope", ONLOAD_SCOPE_GLOBAL + 1);
}

static double busy_s(void) {
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* The time that waiting for nothing takes of a processor. EF_POLL_USEC is longer than the wait. */
static double poll_s(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    double before = busy_s();
    need(poll(&one, 1, 300) == 0, "poll");
    return busy_s() - before;
}

static void choose_spins(int fd) {
    unsigned spins = 0;
    say("no spin %d", onload_thread_set_spin(ONLOAD_SPIN_ALL, 0));
    say("poll takes a quarter of the time: %d", poll_s(fd) > 0.075);
    if (onload_thread_get_spin(&spins) == 0) {
        say("spins of none %x", spins);
        onload_thread_set_spin(ONLOAD_SPIN_POLL, 1);
        onload_thread_get_spin(&spins);
        say("spins of poll %x", spins);
        double busy = 0;
        for (int tries = 0; tries < 100 && busy < 0.001; tries++)
            busy += poll_s(fd);
        say("poll spins: %d", busy >= 0.001);
    }
    say("a wrong type %d", onload_thread_set_spin(ONLOAD_SPIN_MAX, 1));
}

static void solo(void) {
    int listening = listener_on("127.0.0.1", 4);
    set_nonblocking(listening);
    need(accept(listening, NULL, NULL) == -1 && errno == EAGAIN, "accept without a client");
    int client = dial_port(port_of(listening));
    wait_for(listening, POLLIN);
    int server = accept(listening, NULL, NULL);
    need(server >= 0, "accept");
    say("present %d", onload_is_present());
    say_stat("the listener", listening);
    say_stat("the client", client);
    say_stat("the server", server);
    say_stat("standard input", 0);
    say_stat("no descriptor", -1);
    say("without a place %d", onload_fd_stat(client, NULL));
    say("moved %d, not the kernel's %d", onload_move_fd(server), onload_move_fd(0));
    say("warm sends %d", onload_fd_check_feature(client, ONLOAD_FD_FEAT_MSG_WARM));
    say("an unknown feature %d", onload_fd_check_feature(client, 99));
    if (onload_fd_stat(client, NULL) == 1)
        say("a warm send %zd", send(client, "xy", 2, ONLOAD_MSG_WARM));
    say("the server has anything to read: %d", poll(&(struct pollfd){.fd = server, .events = POLLIN}, 1, 0));
    choose_stacks();
    choose_spins(client);
}
