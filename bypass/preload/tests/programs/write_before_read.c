/* solo: a program that writes to itself before it reads: 1 MiB in one call, by pieces, both ways at once,
 * then again and again; and how much is taken before it says EAGAIN. */
#define SOLO
#include "contract.h"

#define MIB (1 << 20)

static char sent[MIB], got[MIB];

static void connect_to_self(int *near, int *far) {
    int listening = listener_on("127.0.0.1", 16);
    *near = dial_port(port_of(listening));
    *far = accept(listening, NULL, NULL);
    need(*far >= 0, "accept");
    close(listening);
}

static void pass_a_mebibyte(int from, int to, size_t piece) {
    for (size_t done = 0; done < MIB; done += piece)
        need(write(from, sent + done, piece) == (ssize_t)piece, "write");
    int there = 0;
    wait_for(to, POLLIN);
    memset(got, 0, MIB);
    read_all(to, got, MIB);
    need(ioctl(to, FIONREAD, &there) == 0, "FIONREAD");
    say("by %zu: the same %d, left %d", piece, memcmp(sent, got, MIB) == 0, there);
}

static void both_ways(int near, int far) {
    write_all(near, sent, MIB);
    write_all(far, sent, MIB);
    read_all(near, got, MIB);
    int first = memcmp(sent, got, MIB) == 0;
    read_all(far, got, MIB);
    say("both ways: %d %d", first, memcmp(sent, got, MIB) == 0);
}

static void many_in_turn(int count) {
    int right = 0;
    for (int i = 0; i < count; i++) {
        int near, far;
        connect_to_self(&near, &far);
        write_all(near, sent, MIB);
        read_all(far, got, MIB);
        right += memcmp(sent, got, MIB) == 0;
        close(near);
        close(far);
    }
    say("in turn: %d of %d", right, count);
}

static void full(int near, int far) {
    set_nonblocking(near);
    long total = 0;
    ssize_t put;
    for (int looks = 0; looks < 5; looks++, usleep(10000))
        while ((put = write(near, sent, 50000)) > 0)
            total += put;
    result("full", put);
    say("more than a mebibyte %d, less than eight %d", total > MIB, total < 8 * MIB);
    while (total > 0) {
        ssize_t part = read(far, got, MIB);
        need(part > 0, "read");
        total -= part;
    }
    wait_for(near, POLLOUT);
    result("write", write(near, sent, 1000));
}

static void solo(void) {
    for (int i = 0; i < MIB; i++)
        sent[i] = (char)stream_byte(i);
    int near, far;
    connect_to_self(&near, &far);
    pass_a_mebibyte(near, far, MIB);
    pass_a_mebibyte(far, near, 4096);
    pass_a_mebibyte(near, far, 16384);
    both_ways(near, far);
    for (int i = 0; i < 100; i++) {
        char byte = (char)i;
        need(write(near, &byte, 1) == 1 && read(far, &byte, 1) == 1 && byte == (char)i, "a byte");
    }
    both_ways(near, far);
    full(near, far);
    close(near);
    close(far);
    many_in_turn(50);
}
