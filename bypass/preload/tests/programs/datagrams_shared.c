/* pair: UDP sockets under several descriptors and in several processes: dup, fork, SCM_RIGHTS, exec, a port used again. */
#include "datagrams.h"

static void server(void) {
    struct sockaddr_in client;
    int fd = served(&client);
    int twin = dup(fd);
    say_next("nothing", twin, MSG_DONTWAIT);
    meet();
    say_next("by the first", fd, 0);
    say_next("by the second", twin, 0);
    result("close", close(fd));
    meet();
    say_next("by what is left", twin, 0);
    int other = datagram_socket();
    result("dup2", dup2(twin, other) == other);
    meet();
    say_next("by what it replaced", other, 0);
    result("close", close(other));

    /* From here on it is in two processes: each datagram is taken once. */
    pid_t child = fork();
    if (child == 0) {
        say_next("in the child", twin, 0);
        _exit(0);
    }
    meet();
    int status;
    need(waitpid(child, &status, 0) == child, "wait");
    say("status of the child %d", status);
    meet();
    say_next("in the parent", twin, 0);

    int port = port_of(twin), ends[2];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair");
    int fresh = datagram_socket();
    tell(port_of(fresh));
    say_next("nothing yet", fresh, MSG_DONTWAIT);
    hand(ends[0], &fresh, 1);
    int received;
    take(ends[1], &received, 1);
    meet();
    say_next("by what was passed", received, 0);
    say_next("nothing more", fresh, MSG_DONTWAIT);
    close(fresh);
    close(received);

    /* A stream of libc's closes it unseen, and a file has its number next. */
    int streamed = datagram_socket();
    FILE *stream = fdopen(streamed, "r+");
    fclose(stream);
    int file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
    say("the same number: %d", file == streamed);
    char text[8] = "";
    result("write", write(file, "to file", 7));
    result("pread", pread(file, text, 7, 0));
    lseek(file, 3, SEEK_SET);
    result("read", read(file, text, 4));
    say("%s", text);
    close(file);

    close(twin);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port)};
    int next = socket(AF_INET, SOCK_DGRAM, 0);
    result("the port again", bind(next, (struct sockaddr *)&name, sizeof name));
    say_next("nothing", next, MSG_DONTWAIT);
    meet();
    say_next("at the same port", next, 0);
    char number[16];
    snprintf(number, sizeof number, "%d", next);
    fflush(stdout);
    execlp("python3", "python3", "-c",
           "import socket, sys\n"
           "s = socket.socket(fileno=int(sys.argv[1]))\n"
           "c = socket.socket(fileno=0)\n"
           "c.send(bytes(4)); c.recv(4)\n"
           "print('in the next image:', s.recv(64).decode())\n",
           number, NULL);
    need(0, "execlp");
}

static void client(void) {
    struct sockaddr_in server;
    int fd = asking(&server);
    meet();
    send_text(fd, &server, "one");
    send_text(fd, &server, "two");
    meet();
    send_text(fd, &server, "three");
    meet();
    send_text(fd, &server, "four");
    meet();
    send_text(fd, &server, "five");
    meet();
    send_text(fd, &server, "six");
    struct sockaddr_in other = server;
    other.sin_port = htons(hear());
    meet();
    send_text(fd, &other, "seven");
    meet();
    send_text(fd, &server, "eight");
    meet();
    send_text(fd, &server, "nine");
}
