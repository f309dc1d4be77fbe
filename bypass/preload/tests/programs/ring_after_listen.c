/* pair: a server listens first and makes its io_uring then, as tutorials have it, and accepts through the ring. Its
 * system calls are its own, as those of a static liburing: no library sees them. */
#include "contract.h"
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define CONNECTIONS 5

static long own_call(long number, long a, long b, long c, long d) {
#if defined(__x86_64__)
    long result;
    register long fourth __asm__("r10") = d;
    register long fifth __asm__("r8") = 0;
    register long sixth __asm__("r9") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
                     : "rcx", "r11", "memory");
    return result;
#else
    register long result __asm__("x0") = a;
    register long second __asm__("x1") = b;
    register long third __asm__("x2") = c;
    register long fourth __asm__("x3") = d;
    register long fifth __asm__("x4") = 0;
    register long sixth __asm__("x5") = 0;
    register long which __asm__("x8") = number;
    __asm__ volatile("svc 0"
                     : "+r"(result)
                     : "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth), "r"(which)
                     : "memory");
    return result;
#endif
}

static struct io_uring_params ring;
static char *queue, *completions;
static struct io_uring_sqe *entries;
static int ring_fd;

static unsigned *word(char *base, unsigned offset) { return (unsigned *)(base + offset); }

static void make_ring(void) {
    ring_fd = own_call(SYS_io_uring_setup, 8, (long)&ring, 0, 0);
    need(ring_fd >= 0, "io_uring_setup");
    int both = PROT_READ | PROT_WRITE;
    size_t size = ring.sq_off.array + ring.sq_entries * sizeof(unsigned);
    queue = mmap(NULL, size, both, MAP_SHARED, ring_fd, IORING_OFF_SQ_RING);
    size = ring.cq_off.cqes + ring.cq_entries * sizeof(struct io_uring_cqe);
    completions = mmap(NULL, size, both, MAP_SHARED, ring_fd, IORING_OFF_CQ_RING);
    size = ring.sq_entries * sizeof *entries;
    entries = mmap(NULL, size, both, MAP_SHARED, ring_fd, IORING_OFF_SQES);
    need(queue != MAP_FAILED && completions != MAP_FAILED && entries != MAP_FAILED, "mmap");
}

static int by_ring(struct io_uring_sqe entry) {
    unsigned tail = *word(queue, ring.sq_off.tail), at = tail & *word(queue, ring.sq_off.ring_mask);
    entries[at] = entry;
    word(queue, ring.sq_off.array)[at] = at;
    __atomic_store_n(word(queue, ring.sq_off.tail), tail + 1, __ATOMIC_RELEASE);
    long done;
    do
        done = own_call(SYS_io_uring_enter, ring_fd, 1, 1, IORING_ENTER_GETEVENTS);
    while (done == -EINTR);
    need(done == 1, "io_uring_enter");
    unsigned head = *word(completions, ring.cq_off.head);
    struct io_uring_cqe *all = (struct io_uring_cqe *)(completions + ring.cq_off.cqes);
    int result = all[head & *word(completions, ring.cq_off.ring_mask)].res;
    __atomic_store_n(word(completions, ring.cq_off.head), head + 1, __ATOMIC_RELEASE);
    return result;
}

static void server(void) {
    int listening = listener_on("127.0.0.1", 16);
    make_ring();
    tell(port_of(listening));
    for (int i = 0; i < CONNECTIONS; i++) {
        struct io_uring_sqe entry = {.opcode = IORING_OP_ACCEPT, .fd = listening};
        int fd = by_ring(entry);
        char byte = 0;
        say("accepted %d", fd >= 0);
        entry = (struct io_uring_sqe){
            .opcode = IORING_OP_RECV, .fd = fd, .addr = (uintptr_t)&byte, .len = 1};
        say("received %d: %c", by_ring(entry), byte);
        entry.opcode = IORING_OP_SEND;
        say("sent %d", by_ring(entry));
        close(fd);
    }
}

static void client(void) {
    int port = hear(), right = 0;
    for (int i = 0; i < CONNECTIONS; i++) {
        int fd = dial_port(port);
        struct timeval patience = {.tv_sec = LONG_S};
        char letter = 'a' + i, answer = 0;
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
        write_all(fd, &letter, 1);
        right += read(fd, &answer, 1) == 1 && answer == letter;
        close(fd);
    }
    say("right answers %d", right);
}
