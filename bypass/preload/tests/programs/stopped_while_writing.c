/* pair: a process that is stopped while its threads use one connection goes on when it continues. */
#include "contract.h"

#define THREADS 4
#define STOPS 1

static int fd;
static volatile int is_over;

static void *writes(void *sum) {
    while (!is_over) {
        ssize_t put = send(fd, "x", 1, MSG_NOSIGNAL);
        if (put != 1) {
            result("write", put);
            break;
        }
        ++*(long *)sum;
    }
    return NULL;
}

static void server(void) {
    fd = serve_one();
    tell(getpid());
    pthread_t threads[THREADS];
    long sums[THREADS] = {0}, all = 0;
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, writes, &sums[i]);
    hear();
    is_over = 1;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        all += sums[i];
    }
    close(fd);
    tell((int)all);
}

static void *reads(void *sum) {
    static char bytes[65536];
    ssize_t got;
    while ((got = read(fd, bytes, sizeof bytes)) > 0)
        *(long *)sum += got;
    result("end", got);
    return NULL;
}

static void client(void) {
    long sum = 0;
    pthread_t reader;
    fd = dial();
    pid_t other = hear();
    pthread_create(&reader, NULL, reads, &sum);
    for (int i = 0; i < STOPS; i++) {
        usleep(50000);
        need(kill(other, SIGSTOP) == 0, "SIGSTOP");
        usleep(2200000);
        need(kill(other, SIGCONT) == 0, "SIGCONT");
    }
    usleep(50000);
    tell(0);
    int sent = hear();
    pthread_join(reader, NULL);
    say("all bytes came %d", sum == sent);
}
