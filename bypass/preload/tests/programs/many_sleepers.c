/* pair: hundreds of threads that sleep in read are woken in one go: none is left out. */
#include "contract.h"

#define READERS 400

static volatile pid_t readers[READERS];
static int connections[READERS], woken;

static void raise_limit(void) {
    struct rlimit limit;
    need(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
    limit.rlim_cur = limit.rlim_max;
    need(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

static void server(void) {
    raise_limit();
    int listening = listener(READERS);
    for (int i = 0; i < READERS; i++)
        need((connections[i] = accept(listening, NULL, NULL)) >= 0, "accept");
    hear();
    for (int i = 0; i < READERS; i++)
        write_all(connections[i], "w", 1);
    hear();
}

static void *reader(void *number) {
    long own = (long)number;
    char byte;
    readers[own] = gettid();
    if (read(connections[own], &byte, 1) == 1)
        __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int all_wait(void) {
    for (int i = 0; i < READERS; i++)
        if (!readers[i] || !is_asleep(readers[i]))
            return 0;
    return 1;
}

static void client(void) {
    raise_limit();
    int port = hear();
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    for (int i = 0; i < READERS; i++) {
        pthread_t thread;
        connections[i] = dial_port(port);
        need(pthread_create(&thread, &attributes, reader, (void *)(long)i) == 0, "thread");
    }
    for (int looks = 0; looks < 3; looks = all_wait() ? looks + 1 : 0)
        usleep(10000);
    tell(0);
    for (double start = now_s(); woken < READERS && now_s() < start + LONG_S;)
        usleep(10000);
    say("woken %d", woken);
    tell(0);
}
