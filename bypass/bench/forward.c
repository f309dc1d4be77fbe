/* A link with a rate, a queue, a delay and seeded loss between two interfaces, for kernels without netem.
 *
 *   forward IF IF loss=SHARE delay_us=N rate_bps=N queue=N seed=N
 *
 * Forwards every frame from each interface to the other until SIGTERM, each direction separately: a frame is
 * lost at random (IP only), or because `queue` others wait for the rate, or it arrives `delay_us` after it
 * has left. rate_bps=0: unlimited. At the end it prints counts as one line of JSON; "late_us" is the
 * worst delay of a frame beyond its time, "missed" the frames that the kernel dropped before.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FRAME_MAX 2048
#define HELD_MAX (1 << 16)
#define BATCH 64
#define BUFFER_BYTES (64 << 20)

struct frame {
    uint64_t at_ns;
    uint32_t length;
    uint8_t bytes[FRAME_MAX];
};

struct direction {
    int from, to;
    struct frame *held; /* a ring of HELD_MAX, in the order of arrival */
    uint64_t first, behind;
    uint64_t leaving_ns[HELD_MAX]; /* when those in the queue leave it */
    uint64_t queue_first, queue_behind, busy_until_ns;
    uint64_t frames, lost, overflowed, too_long, late_ns;
};

static struct direction directions[2];
static double loss;
static uint64_t delay_ns, rate_bps, queue_length = 1000, state = 1;
static volatile sig_atomic_t is_over;

static void end(int signal) {
    (void)signal;
    is_over = 1;
}

static void fail(const char *what) {
    fprintf(stderr, "forward: %s: %s\n", what, strerror(errno));
    exit(2);
}

static uint64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

/* xorshift64*: good enough for faults. */
static double draw(void) {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return (double)((state * 0x2545f4914f6cdd1dull) >> 11) / (double)(1ull << 53);
}

static int open_interface(const char *name) {
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, htons(ETH_P_ALL)), on = 1;
    int bytes = BUFFER_BYTES;
    struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    at.sll_ifindex = (int)if_nametoindex(name);
    if (fd == -1 || at.sll_ifindex == 0 || bind(fd, (struct sockaddr *)&at, sizeof at) == -1)
        fail(name);
    if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) == -1)
        fail("PACKET_IGNORE_OUTGOING");
    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
    return fd;
}

/* When a frame that arrives now leaves the queue; 0: the queue is full. */
static uint64_t leave(struct direction *d, uint32_t length, uint64_t now) {
    if (rate_bps == 0)
        return now;
    while (d->queue_first < d->queue_behind && d->leaving_ns[d->queue_first % HELD_MAX] <= now)
        d->queue_first++;
    if (d->queue_behind - d->queue_first >= queue_length)
        return 0;
    uint64_t begin = d->busy_until_ns > now ? d->busy_until_ns : now;
    d->busy_until_ns = begin + length * 8000000000ull / rate_bps;
    d->leaving_ns[d->queue_behind++ % HELD_MAX] = d->busy_until_ns;
    return d->busy_until_ns;
}

static void take(struct direction *d, struct frame *frame, uint64_t now) {
    int is_ip = frame->bytes[12] == 0x08 ? frame->bytes[13] == 0x00 : frame->bytes[12] == 0x86;
    d->frames++;
    if (is_ip && draw() < loss) {
        d->lost++;
        return;
    }
    uint64_t left = leave(d, frame->length, now);
    if (left == 0 || d->behind - d->first >= HELD_MAX - BATCH) {
        d->overflowed++;
        return;
    }
    frame->at_ns = left + delay_ns;
    d->behind++;
}

/* Frames are read into the place where they wait. */
static int receive(struct direction *d) {
    int count = 0;
    for (; count < BATCH; count++) {
        struct frame *frame = &d->held[d->behind % HELD_MAX];
        ssize_t got = recv(d->from, frame->bytes, FRAME_MAX, MSG_TRUNC);
        if (got < ETH_HLEN)
            break;
        if (got > FRAME_MAX) {
            d->too_long++;
            continue;
        }
        frame->length = (uint32_t)got;
        take(d, frame, now_ns());
    }
    return count;
}

/* Sends frames that are due; returns when the next one is. */
static uint64_t send_due(struct direction *d) {
    for (; d->first < d->behind; d->first++) {
        struct frame *frame = &d->held[d->first % HELD_MAX];
        uint64_t now = now_ns();
        if (frame->at_ns > now)
            return frame->at_ns;
        if (send(d->to, frame->bytes, frame->length, 0) == -1 && (errno == EAGAIN || errno == ENOBUFS))
            return now + 50000;
        if (now - frame->at_ns > d->late_ns)
            d->late_ns = now - frame->at_ns;
    }
    return UINT64_MAX;
}

static void wait_until(uint64_t due) {
    uint64_t now = now_ns(), most = now + 100000000, until = due < most ? due : most;
    struct pollfd fds[] = {{directions[0].from, POLLIN, 0}, {directions[1].from, POLLIN, 0}};
    struct timespec wait = {.tv_nsec = until > now ? (long)(until - now) : 0};
    ppoll(fds, 2, &wait, NULL);
}

static void read_options(char **words) {
    for (; *words; words++) {
        uint64_t number = 0;
        if (sscanf(*words, "loss=%lf", &loss) == 1)
            continue;
        if (sscanf(*words, "delay_us=%lu", &number) == 1)
            delay_ns = number * 1000;
        else if (sscanf(*words, "rate_bps=%lu", &number) == 1)
            rate_bps = number;
        else if (sscanf(*words, "queue=%lu", &number) == 1 && number < HELD_MAX / 2)
            queue_length = number;
        else if (sscanf(*words, "seed=%lu", &number) == 1)
            state = (number + 1) * 0x9e3779b97f4a7c15ull;
        else {
            fprintf(stderr, "forward: unknown option or value out of range: %s\n", *words);
            exit(2);
        }
    }
}

static void print(void) {
    for (int side = 0; side < 2; side++) {
        struct direction *d = &directions[side];
        struct tpacket_stats seen = {0};
        socklen_t length = sizeof seen;
        getsockopt(d->from, SOL_PACKET, PACKET_STATISTICS, &seen, &length);
        printf("%s{\"frames\": %lu, \"lost\": %lu, \"overflowed\": %lu, \"too_long\": %lu, \"missed\": %u, "
               "\"late_us\": %lu}", side ? ", " : "[", d->frames, d->lost, d->overflowed, d->too_long,
               seen.tp_drops, d->late_ns / 1000);
    }
    printf("]\n");
}

int main(int count, char **words) {
    if (count < 3) {
        fprintf(stderr, "forward: wants two interfaces\n");
        return 2;
    }
    read_options(words + 3);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1);
    signal(SIGTERM, end);
    int fds[] = {open_interface(words[1]), open_interface(words[2])};
    for (int side = 0; side < 2; side++) {
        directions[side] = (struct direction){.from = fds[side], .to = fds[1 - side]};
        directions[side].held = malloc(HELD_MAX * sizeof(struct frame));
        if (!directions[side].held)
            fail("memory");
    }
    printf("ready\n");
    fflush(stdout);
    while (!is_over) {
        int got = receive(&directions[0]) + receive(&directions[1]);
        uint64_t due = send_due(&directions[0]), other = send_due(&directions[1]);
        if (!got)
            wait_until(due < other ? due : other);
    }
    print();
    return 0;
}
