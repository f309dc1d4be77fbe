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
    stopped_was_over = naps_s();
    return NULL;
}

static void client(void) {
    stopped_port = hear();
    int process = hear();
    int here = listener_on("127.0.0.1", 16);
    int port = port_of(here);
    need(kill(process, SIGSTOP) == 0, "stop");
    pthread_t thread;
    begin_naps();
    pthread_create(&thread, NULL, to_the_stopped, NULL);
    usleep(50000);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in name = ipv4("127.0.0.1", port);
    double before = naps_s();
    int code = connect(fd, (struct sockaddr *)&name, sizeof name);
    double after = naps_s();
    pthread_join(thread, NULL);
    outcome("connect", code);
    /* A connect to a stopped server gives up after a second. */
    int has_waited = stopped_was_over <= after && stopped_was_over - before > 0.3;
    say("it did not wait: %d", !has_waited);
    need(kill(process, SIGCONT) == 0, "go on");
    tell(0);
}
