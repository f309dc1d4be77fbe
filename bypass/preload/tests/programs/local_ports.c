/* pair: clients that live at the same time have different local ports, whichever process they are of. */
#include "contract.h"

#define PROCESSES 16
#define EACH 30

static void server(void) {
    static unsigned char seen[65536];
    int listening = listener(512), twice = 0;
    for (int i = 0; i < PROCESSES * EACH; i++) {
        struct sockaddr_in name;
        socklen_t length = sizeof name;
        need(accept(listening, (struct sockaddr *)&name, &length) >= 0, "accept");
        twice += seen[ntohs(name.sin_port)]++;
    }
    say("ports that two clients have %d", twice);
    meet();
}

static void client(void) {
    int port = hear(), go[2], status, good = 0;
    char byte;
    need(pipe(go) == 0, "pipe");
    for (int i = 0; i < PROCESSES; i++) {
        if (fork() == 0) {
            close(go[1]);
            for (int k = 0; k < EACH; k++)
                dial_port(port);
            _exit(read(go[0], &byte, 1) != 0);
        }
    }
    meet();
    close(go[1]);
    for (int i = 0; i < PROCESSES; i++)
        good += wait(&status) > 0 && status == 0;
    say("ended well %d", good);
}
