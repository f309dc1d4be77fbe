/* solo: a thread that starts programs by vfork does not wait for children that another thread forks meanwhile. */
#define SOLO
#include "contract.h"

#define STARTS 40

static volatile int is_over;
static pid_t forked[300];
static int count, good;
static double longest, since;

static void *forks(void *unused) {
    while (!is_over && count < 300) {
        pid_t child = fork();
        if (child == 0) {
            sleep(LONG_S);
            _exit(0);
        }
        forked[count++] = child;
        usleep(2000);
    }
    return unused;
}

static void solo(void) {
    pthread_t thread;
    int listening = listener_on("127.0.0.1", 4);
    need(pthread_create(&thread, NULL, forks, NULL) == 0, "pthread_create");
    for (int i = 0; i < STARTS; i++) {
        int status = -1;
        since = now_s();
        pid_t child = vfork();
        if (child == 0) {
            execl("/bin/true", "true", NULL);
            _exit(1);
        }
        double waited = now_s() - since;
        longest = waited > longest ? waited : longest;
        waitpid(child, &status, 0);
        good += status == 0;
    }
    is_over = 1;
    pthread_join(thread, NULL);
    for (int i = 0; i < count; i++) {
        kill(forked[i], SIGKILL);
        waitpid(forked[i], NULL, 0);
    }
    say("started %d, in time %d", good, longest < LONG_S / 2);
    close(listening);
}
