/* pair: a client whose connection is not accepted yet exits while another thread of its process, which it has not made, is held
 * at any of its system calls: it ends, and the connection is accepted. */
#include "stepping.h"

/* The thread makes more only while it has nothing to do. */
#define HELD_MAX 48
/* Between looks, and how many of them in a row find a thread asleep that has come to rest. */
#define LOOK_US 200
#define LOOKS 30

static void connects_and_exits(int port) {
    alarm(LONG_S);
    dial_port(port);
    /* Only the tracer notices: the connection stands, and the process is about to end. */
    raise(SIGUSR1);
    _exit(0);
}

enum stage {
    CONNECTING, /* the other thread is held where it begins */
    STEPPING,   /* the child is held, the other thread goes to its boundary */
    HELD,       /* the other thread is held there, the child ends or waits for it */
    FREE
};

static void go_on(pid_t thread, int signal) { ptrace(PTRACE_SYSCALL, thread, NULL, (void *)(long)signal); }

static int has_come_to_rest(pid_t thread, int *looks) {
    *looks = thread_state(thread) == 'S' ? *looks + 1 : 0;
    return *looks == LOOKS;
}

/* Holds the other thread of `child` at one beginning or end of its system calls while the child exits. How the child ended;
 * `was_held`: the thread had come so far. */
static int ended_with_thread_at(pid_t child, int boundary, int *was_held) {
    enum stage stage = CONNECTING;
    pid_t thread, other = 0;
    int status, reached = 0, looks = 0;
    *was_held = 0;
    while ((thread = waitpid(-1, &status, __WALL | WNOHANG)) >= 0) {
        if (thread == 0) {
            usleep(LOOK_US);
            if (stage == STEPPING && has_come_to_rest(other, &looks)) {
                stage = FREE;
                go_on(child, 0);
            } else if (stage == HELD && has_come_to_rest(child, &looks)) {
                stage = FREE;
                go_on(other, 0);
            }
            continue;
        }
        looks = 0;
        if (!WIFSTOPPED(status)) {
            if (thread == child)
                return status;
            continue;
        }
        int number = WSTOPSIG(status), is_call = number == (SIGTRAP | 0x80), is_own = is_call || status >> 16 != 0;
        if (thread == child && !is_own && number == SIGUSR1) {
            stage = other ? STEPPING : FREE;
            go_on(other ? other : child, 0);
        } else if (stage == CONNECTING && thread != child && !other) {
            other = thread;
        } else if (stage == STEPPING && thread == other && is_call && ++reached == boundary) {
            stage = HELD;
            *was_held = 1;
            go_on(child, 0);
        } else {
            go_on(thread, is_own ? 0 : number);
        }
    }
    return -1;
}

static void server(void) {
    int listening = listener(64), came = 0, rounds = 0;
    /* It is known to accept from then on. */
    close(accept(listening, NULL, NULL));
    for (; hear(); rounds++) {
        int fd = accept(listening, NULL, NULL);
        came += fd >= 0;
        close(fd);
        tell(0);
    }
    say("accepted all %d", came == rounds);
}

static void client(void) {
    int port = hear(), boundary = 0, bad = 0, was_held;
    pid_t first = fork();
    if (first == 0) {
        char byte;
        _exit(read(dial_port(port), &byte, 1) != 0);
    }
    need(waitpid(first, NULL, 0) == first, "waitpid");
    do {
        pid_t child = begin_traced(connects_and_exits, port);
        bad += ended_with_thread_at(child, ++boundary, &was_held) != 0;
        tell(1);
        hear();
    } while (was_held && !bad && boundary < HELD_MAX);
    tell(0);
    say("ended badly %d", bad);
}
