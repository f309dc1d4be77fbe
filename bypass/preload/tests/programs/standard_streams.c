/* pair: a program whose standard streams lead to a connection, and back: stdio, system and popen go where the numbers do. */
#include "contract.h"

static void server(void) {
    int fd = serve_one(), channel = dup(0), output = dup(1);
    char first[64] = "", second[64] = "";
    printf("kept back, ");
    dup2(fd, 0);
    dup2(fd, 1);
    printf("hello\n");
    int flushed = fflush(stdout), number = fileno(stdout);
    fgets(first, sizeof first, stdin);
    int status = system("echo from a shell");
    FILE *pipe = popen("cat", "w");
    fputs("through a pipe\n", pipe);
    int closed = pclose(pipe);
    fgets(second, sizeof second, stdin);
    puts("bye");
    fclose(stdin);
    dup2(fd, 0);
    printf("kept for later, ");
    dup2(output, 1);
    dup2(channel, 0);
    say("flushed %d, stdout is %d, system %d, popen %d", flushed, number, status, closed);
    say("got %s and %s", first, second);
    close(fd);
}

static void client(void) {
    int fd = dial();
    char answer[256] = "";
    write_all(fd, "first\nsecond\n", 13);
    size_t length = 0;
    ssize_t got;
    while ((got = read(fd, answer + length, sizeof answer - 1 - length)) > 0)
        length += got;
    say("%s then %s", answer, got ? strerrorname_np(errno) : "the end");
}
