/* pair: a thread accepts while another forks: what a child writes to a number that it has seen comes to
 * that connection or nowhere, never to a later one. */
#include "contract.h"

#define ROUNDS 200

static int listening;
static volatile int accepted = -1;
static volatile char letter;

static void *accepts(void *unused) {
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        int fd = accept(listening, NULL, NULL);
        need(fd >= 0, "accept");
        char byte;
        read_all(fd, &byte, 1);
        letter = byte;
        accepted = fd;
        while (accepted != -1)
            usleep(10);
    }
    return NULL;
}

static void server(void) {
    pthread_t thread;
    signal(SIGCHLD, SIG_IGN);
    listening = listener(64);
    pthread_create(&thread, NULL, accepts, NULL);
    for (int done = 0; done < ROUNDS;) {
        pid_t child = fork();
        if (child == 0) {
            int fd = accepted;
            char byte = letter;
            /* By then the parent has closed it, and has the number again. */
            usleep(2000);
            if (fd >= 0)
                send(fd, &byte, 1, MSG_NOSIGNAL);
            _exit(0);
        }
        if (accepted != -1) {
            close(accepted);
            accepted = -1;
            done++;
        }
    }
    pthread_join(thread, NULL);
    say("all were accepted");
}

static void client(void) {
    int port = hear(), wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        int fd = dial_port(port);
        char own = 'a' + i % 26, byte;
        write_all(fd, &own, 1);
        while (read(fd, &byte, 1) == 1)
            wrong += byte != own;
        close(fd);
    }
    say("bytes of another connection %d", wrong);
}
