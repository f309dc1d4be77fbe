/* pair: memory that is shared with other processes is left out of a core dump, of both ends. */
#include "contract.h"

/* Mappings of the library's that a dump would read. */
static int dumped(void) {
    char line[512];
    int is_segment = 0, found = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    need(file != NULL, "/proc/self/smaps");
    while (fgets(line, sizeof line, file)) {
        if (strstr(line, "-") && strstr(line, ":") && strchr(line, '-') < strchr(line, ' '))
            is_segment = strstr(line, "/memfd:wirespeed-segment") != NULL;
        if (is_segment && strncmp(line, "VmFlags:", 8) == 0)
            found += strstr(line, " dd") == NULL;
    }
    fclose(file);
    return found;
}

static void server(void) {
    int fd = serve_one();
    say("dumped %d", dumped());
    meet();
    close(fd);
}

static void client(void) {
    int fd = dial();
    meet();
    say("dumped %d", dumped());
    close(fd);
}
