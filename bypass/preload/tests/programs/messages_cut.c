/* pair: sendmmsg of messages that do not fit stops behind the one of which a part was taken. */
#include "contract.h"

#define BYTES (3 << 20)
#define ROUNDS 8

static void server(void) {
    static unsigned char first[BYTES], second[BYTES];
    int fd = serve_one(), cut = 0;
    set_nonblocking(fd);
    uint64_t place = 0;
    while (place < (uint64_t)ROUNDS * BYTES) {
        fill(first, BYTES, place);
        fill(second, BYTES, place + BYTES);
        struct iovec pieces[] = {{first, BYTES}, {second, BYTES}};
        struct mmsghdr messages[2];
        memset(messages, 0, sizeof messages);
        for (int i = 0; i < 2; i++) {
            messages[i].msg_hdr.msg_iov = &pieces[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        int sent = sendmmsg(fd, messages, 2, MSG_NOSIGNAL);
        if (sent == -1 && errno == EAGAIN) {
            wait_for(fd, POLLOUT);
            continue;
        }
        need(sent > 0, "sendmmsg");
        cut += messages[0].msg_len < BYTES && sent == 2;
        for (int i = 0; i < sent; i++)
            place += messages[i].msg_len;
    }
    close(fd);
    say("messages behind a part of one: %d", cut);
}

static void client(void) {
    static unsigned char bytes[65536];
    int fd = dial(), wrong = 0;
    uint64_t place = 0;
    ssize_t got;
    while ((got = read(fd, bytes, sizeof bytes)) > 0) {
        for (ssize_t i = 0; i < got; i++)
            wrong += bytes[i] != stream_byte(place + i);
        place += got;
    }
    say("all came %d, wrong %d", place >= (uint64_t)ROUNDS * BYTES, wrong);
}
