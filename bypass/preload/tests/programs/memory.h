/* Reads the kernel's figures of this process's memory, for programs that compare them. */
#include "contract.h"
#include <sys/mman.h>

#define OWN_PAGES 256

/* A number of /proc/self/status. */
UNUSED static long status_of(const char *field) {
    char line[256];
    long found = -1;
    FILE *file = fopen("/proc/self/status", "r");
    need(file != NULL, "/proc/self/status");
    while (fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0)
            found = atol(line + strlen(field));
    fclose(file);
    return found;
}

/* How many mappings have a flag of /proc/self/smaps (" dd": left out of a dump; " lo": locked), or do not have it: the
 * mapping at the address; with no address, the segments. */
UNUSED static int mappings(const void *at, const char *flag, int has_it) {
    char line[512];
    int is_it = 0, found = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    need(file != NULL, "/proc/self/smaps");
    while (fgets(line, sizeof line, file)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            is_it = at ? start <= (unsigned long)at && (unsigned long)at < end
                       : strstr(line, "/memfd:wirespeed-segment") != NULL;
        if (is_it && strncmp(line, "VmFlags:", 8) == 0)
            found += (strstr(line, flag) != NULL) == has_it;
    }
    fclose(file);
    return found;
}

/* Pages of the program's own that are untouched. */
UNUSED static unsigned char *untouched(void) {
    void *at = mmap(NULL, OWN_PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(at != MAP_FAILED, "mmap");
    madvise(at, OWN_PAGES * 4096, MADV_NOHUGEPAGE);
    return at;
}

UNUSED static void say_resident(const char *name, unsigned char *at) {
    unsigned char pages[OWN_PAGES];
    int count = 0;
    need(mincore(at, OWN_PAGES * 4096, pages) == 0, "mincore");
    for (int i = 0; i < OWN_PAGES; i++)
        count += pages[i] & 1;
    say("%s: %d pages are resident", name, count);
}
