/* pair: a server that waits for its sockets by requests of Linux AIO, as Seastar does. */
#include "contract.h"
#include <linux/aio_abi.h>
#include <sys/syscall.h>

#define CONNECTIONS 3

static aio_context_t context;

static int waited_for(int fd) {
    struct iocb request = {.aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = fd, .aio_buf = POLLIN};
    struct iocb *requests[] = {&request};
    struct io_event event;
    need(syscall(SYS_io_submit, context, 1, requests) == 1, "io_submit");
    need(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1, "io_getevents");
    return (int)event.res & (POLLIN | POLLHUP | POLLERR);
}

static void server(void) {
    need(syscall(SYS_io_setup, 8, &context) == 0, "io_setup");
    int listening = listener(8);
    for (int i = 0; i < CONNECTIONS; i++) {
        char byte = 0;
        say("listener: %s", events(waited_for(listening)));
        int fd = accept(listening, NULL, NULL);
        tell(0);
        say("connection: %s", events(waited_for(fd)));
        result("read", read(fd, &byte, 1));
        result("write", write(fd, "x", 1));
        close(fd);
    }
}

static void client(void) {
    int port = hear();
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = dial_port(port);
        char byte = 0;
        hear();
        usleep(20000);
        write_all(fd, "y", 1);
        result("read", read(fd, &byte, 1));
        close(fd);
    }
}
