/* pair: calls in random order, with random arguments, on a few sockets of two processes. Each seed is one order; the
 * roles take turns, and each waits until what the other has done has arrived. RANDOM_SEEDS=FIRST-LAST chooses seeds,
 * RANDOM_SKIP=NUMBER,… leaves steps out, RANDOM_PATIENCE=SECONDS is how long to wait for what does not come. */
#include "random_calls.h"

#define SEEDS "1-16"
#define STEPS 80

/* Each step has numbers of its own: when one is left out, the others stay as they are. */
static void begin_step(unsigned seed, unsigned step) {
    dice = ((uint64_t)seed << 20 | (step + 1)) * 0x9e3779b97f4a7c15ull;
    for (int i = 0; i < 8; i++)
        pick(2);
}

struct call {
    const char *name;
    void (*make)(int slot);
    int weight;
};
static const struct call CALLS[] = {
    {"socket", call_socket, 4},       {"bind", call_bind, 2},     {"listen", call_listen, 2},
    {"connect", call_connect, 10},    {"accept", call_accept, 8}, {"send", call_send, 24},
    {"receive", call_receive, 24},    {"close", call_close, 5},   {"shutdown", call_shutdown, 4},
    {"duplicate", call_duplicate, 4}, {"flags", call_flags, 6},   {"name", call_name, 4},
    {"option", call_option, 8},       {"poll", call_poll, 8},     {"control", call_control, 8},
    {"wait", call_wait, 8},           {"odd", call_odd, 1},       {"send file", call_send_file, 3},
    {"splice", call_splice, 3},       {"fork", call_fork, 1},     {"pass", NULL /* see pass() */, 1},
};

static const struct call *pick_call(void) {
    int all = 0;
    for (size_t i = 0; i < sizeof CALLS / sizeof *CALLS; i++)
        all += CALLS[i].weight;
    int rest = pick(all);
    const struct call *call = CALLS;
    while (rest >= call->weight)
        rest -= call++->weight;
    return call;
}

/* One role's descriptor goes to the other; the sender keeps its own. */
static void pass(int role, int slot) {
    int index = model->slots[role][slot], place = free_slot(1 - role), fd;
    if (index == NONE || place == NONE || model->of[index].kind != STREAM)
        return;
    if (own_role == role) {
        hand(CHANNEL, &slots[slot], 1);
        return;
    }
    take(CHANNEL, &fd, 1);
    hold(place, fd, index);
    say("  takes object %d", index);
}

static int is_skipped(unsigned step) {
    const char *skipped = getenv("RANDOM_SKIP");
    char wanted[16], list[4096];
    snprintf(wanted, sizeof wanted, ",%u,", step);
    snprintf(list, sizeof list, ",%s,", skipped ? skipped : "");
    return strstr(list, wanted) != NULL;
}

static void make_step(unsigned seed, unsigned step) {
    begin_step(seed, step);
    const struct call *call = pick_call();
    int role = pick(2), slot = pick(SLOTS);
    if (role == own_role)
        say("%u.%u %s, slot %d, object %d", seed, step, call->name, slot, model->slots[role][slot]);
    if (!call->make)
        pass(role, slot);
    else if (role == own_role)
        call->make(slot);
    if (broken_pipes)
        say("  SIGPIPE %d", broken_pipes);
    broken_pipes = 0;
    meet();
    settle();
    meet();
}

/* The sockets that each seed begins with: a listener, two connections, and one that waits to be accepted. */
static void begin(void) {
    if (own_role == 0) {
        int fd = listener_on("127.0.0.1", 16);
        limit_waits(fd);
        hold(0, fd, new_object(LISTENER));
        model->of[0].port = port_of(fd);
        accept(fd, NULL, NULL);
    }
    meet();
    for (int slot = 0; own_role == 1 && slot < 3; slot++) {
        int fd = dial_port(model->of[0].port);
        limit_waits(fd);
        hold(slot, fd, new_object(FRESH));
        connected(object_of(slot), 0, fd, 0);
    }
    meet();
    for (int i = 0; own_role == 0 && i < 2; i++) {
        int fd = accept(slots[0], NULL, NULL);
        need(fd >= 0, "accept");
        note_accepted(0, fd);
    }
    meet();
}

static void run(unsigned seed) {
    if (own_role == 0)
        clear_model();
    say("seed %u", seed);
    memset(slots, -1, sizeof slots);
    for (int i = 0; i < SETS; i++)
        sets[i] = epoll_create1(EPOLL_CLOEXEC);
    need(pipe2(ends_of_pipe, O_NONBLOCK | O_CLOEXEC) == 0, "pipe");
    meet();
    begin();
    for (unsigned step = 0; step < STEPS; step++)
        if (!is_skipped(step))
            make_step(seed, step);
    for (int role = 0; role < 2; role++) {
        for (int slot = 0; role == own_role && slot < SLOTS; slot++)
            call_close(slot);
        meet();
        settle();
        meet();
    }
    for (int i = 0; i < SETS; i++)
        close(sets[i]);
    close(ends_of_pipe[0]);
    close(ends_of_pipe[1]);
}

static void run_all(void) {
    const char *seeds = getenv("RANDOM_SEEDS"), *patience = getenv("RANDOM_PATIENCE");
    unsigned first = 1, last = 1;
    need(sscanf(seeds ? seeds : SEEDS, "%u-%u", &first, &last) == 2, "RANDOM_SEEDS");
    patience_s = patience ? atof(patience) : patience_s;
    signal(SIGPIPE, count_broken_pipe);
    file = memfd_create("file", MFD_CLOEXEC);
    fill(buffer, FILE_BYTES, 7);
    need(write(file, buffer, FILE_BYTES) == FILE_BYTES, "file");
    share_model(own_role == 0);
    for (unsigned seed = first; seed <= last; seed++)
        run(seed);
}

static void server(void) { run_all(); }

static void client(void) {
    own_role = 1;
    run_all();
}
