/* pair: one thread connects to a server that is stopped; another's connect to a second one goes on. */
#include "contract.h"

static int stopped_port;
static double stopped_was_over;

static void server(void) {
    int listening = listener(16);
    tell(getpid());
    hear();
    outcome("accept", accept(listening, NULL, NULL));
}

static void *to_the_stopped(void *unused) {
    (void)unused;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", stopped_port);
    outcome("connect to the stopped", connect(fd, (struct sockaddr *)&name, sizeof name));
    stopped_was_over = now_s();
    return NULL;
}

static void client(void) {
    stopped_port = hear();
    int process = hear();
    int here = listener_on("127.0.0.1", 16);
    int port = port_of(here);
    need(kill(process, SIGSTOP) == 0, "stop");
    pthread_t thread;
    double start = now_s();
    pthread_create(&thread, NULL, to_the_stopped, NULL);
    usleep(50000);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    double before = now_s();
    int code = connect(fd, (struct sockaddr *)&name, sizeof name);
    double after = now_s();
    pthread_join(thread, NULL);
    outcome("connect", code);
    /* It is notified first, or did not have to wait for the other. */
    int is_first = after < stopped_was_over, was_over = stopped_was_over < before;
    say("it did not wait: %d", is_first || was_over || after - start > 5);
    need(kill(process, SIGCONT) == 0, "go on");
    tell(0);
}
