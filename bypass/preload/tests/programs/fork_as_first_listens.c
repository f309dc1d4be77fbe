/* solo: a thread forks while another makes the first listener of its process; neither waits for the other. */
#define SOLO
#include "contract.h"

#define ROUNDS 50

static pthread_barrier_t both;

static void *listens(void *unused) {
    pthread_barrier_wait(&both);
    for (int i = 0; i < 4; i++)
        close(listener_on("127.0.0.1", 4));
    return unused;
}

static void *forks(void *unused) {
    pthread_barrier_wait(&both);
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        need(child >= 0, "fork");
        if (child == 0)
            _exit(0);
        need(waitpid(child, NULL, 0) == child, "waitpid");
    }
    return unused;
}

static void both_at_once(void) {
    pthread_t threads[2];
    need(pthread_barrier_init(&both, NULL, 2) == 0, "pthread_barrier_init");
    need(pthread_create(&threads[0], NULL, listens, NULL) == 0, "pthread_create");
    need(pthread_create(&threads[1], NULL, forks, NULL) == 0, "pthread_create");
    for (int i = 0; i < 2; i++)
        need(pthread_join(threads[i], NULL) == 0, "pthread_join");
    _exit(0);
}

static void solo(void) {
    for (int i = 0; i < ROUNDS; i++) {
        pid_t child = fork();
        need(child >= 0, "fork");
        if (child == 0)
            both_at_once();
        need(waitpid(child, NULL, 0) == child, "waitpid");
    }
    say("%d times both", ROUNDS);
}
