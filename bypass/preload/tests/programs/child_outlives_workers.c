/* pair: a client's child whose servers are killed one after the other is notified of each end, and does not keep more
 * descriptors with each. */
#include "contract.h"
#include <dirent.h>

#define WORKERS 12
/* Far above what the library begins to need meanwhile, and far below what doubling takes. */
#define FEW 30

static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    need(folder != NULL, "opendir");
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

static void server(void) {
    int listening = listener(16);
    pid_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = fork();
        if (workers[i] == 0) {
            int data = accept(listening, NULL, NULL);
            write_all(data, "w", 1);
            for (;;)
                pause();
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        hear();
        kill(workers[i], SIGKILL);
        need(waitpid(workers[i], NULL, 0) == workers[i], "waitpid");
    }
}

static void child(struct pollfd *links) {
    char letter;
    for (int i = 0; i < WORKERS; i++)
        read_all(links[i].fd, &letter, 1);
    int before = descriptors();
    for (int left = WORKERS; left > 0; left--) {
        tell(0);
        result("ended", poll(links, WORKERS, LONG_MS));
        for (int i = 0; i < WORKERS; i++)
            if (links[i].fd >= 0 && links[i].revents != 0) {
                result("recv", recv(links[i].fd, &letter, 1, 0));
                close(links[i].fd);
                links[i].fd = -1;
            }
        if (descriptors() > before + FEW)
            say("%d descriptors more with %d servers left", descriptors() - before, left - 1);
    }
    exit(0);
}

static void client(void) {
    struct pollfd links[WORKERS];
    int port = hear(), status;
    for (int i = 0; i < WORKERS; i++)
        links[i] = (struct pollfd){.fd = dial_port(port), .events = POLLIN};
    pid_t made = fork();
    if (made == 0)
        child(links);
    for (int i = 0; i < WORKERS; i++)
        close(links[i].fd);
    need(waitpid(made, &status, 0) == made, "waitpid");
    say("child status %d", status);
}
