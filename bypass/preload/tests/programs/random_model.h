/* The state of the sockets of both roles of random_calls.c: a model in shared memory. By it a role waits until what
 * the other one has done has arrived, so that every call has one right result. */
#ifndef RANDOM_MODEL_H
#define RANDOM_MODEL_H
#include "contract.h"
#include <sys/mman.h>

#define SLOTS 8
#define OBJECTS_MAX 512
#define NONE -1

enum kind { FRESH, LISTENER, STREAM };

/* A socket, whatever descriptors refer to it. */
struct object {
    enum kind kind;
    int holders;  /* descriptors, of both roles */
    int peer;     /* the other end of a connection */
    int listener; /* where it waits to be accepted */
    int waiting;  /* connections that wait here */
    int port;     /* of a listener, or of the connecting end of a connection */
    int unread;   /* bytes */
    char is_connecting, shut_read, shut_write, is_closed, is_reset, has_urgent;
    char aborts;     /* closes with a reset: SO_LINGER with no time */
    char is_spoiled; /* shut down before it was connected, which connect would find again */
};

struct model {
    int objects;
    struct object of[OBJECTS_MAX];
    int slots[2][SLOTS]; /* the object behind each slot, or NONE */
};

static struct model *model;
static int own_role;
/* The descriptors of this role, or -1. */
static int slots[SLOTS];
/* For calls that nothing ends in the model: longer than anything takes on a busy machine. */
static double patience_s = 20;

static void share_model(int is_server) {
    int memory;
    if (is_server) {
        memory = memfd_create("model", MFD_CLOEXEC);
        need(memory >= 0 && ftruncate(memory, sizeof *model) == 0, "model");
        hand(CHANNEL, &memory, 1);
    } else {
        take(CHANNEL, &memory, 1);
    }
    model = mmap(NULL, sizeof *model, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    need(model != MAP_FAILED, "mmap");
    close(memory);
}

static void clear_model(void) {
    memset(model, 0, sizeof *model);
    for (int i = 0; i < 2 * SLOTS; i++)
        model->slots[i / SLOTS][i % SLOTS] = NONE;
}

static struct object *object_of(int slot) {
    int index = model->slots[own_role][slot];
    return index == NONE ? NULL : &model->of[index];
}

static struct object *peer_of(const struct object *own) { return &model->of[own->peer]; }

static int new_object(enum kind kind) {
    need(model->objects < OBJECTS_MAX, "room for objects");
    model->of[model->objects] = (struct object){.kind = kind, .peer = NONE, .listener = NONE};
    return model->objects++;
}

static int free_slot(int role) {
    for (int slot = 0; slot < SLOTS; slot++)
        if (model->slots[role][slot] == NONE)
            return slot;
    return NONE;
}

static void hold(int slot, int fd, int index) {
    slots[slot] = fd;
    model->slots[own_role][slot] = index;
    model->of[index].holders++;
}

static void reset(struct object *stream) {
    if (!stream->is_closed)
        stream->is_reset = 1;
}

/* No descriptor refers to it any more, or it was dissolved. */
static void end_of(struct object *own, int always_resets) {
    int index = own - model->of;
    /* Of an urgent byte it is not known here whether it was passed over, so its reader's close may reset or not. */
    int is_reset = always_resets || own->aborts || (own->unread > 0 && !own->has_urgent);
    if (own->kind == STREAM && !own->is_closed && !own->is_reset && is_reset)
        reset(peer_of(own));
    for (int i = 0; own->kind == LISTENER && i < model->objects; i++) {
        if (model->of[i].listener != index)
            continue;
        reset(peer_of(&model->of[i]));
        model->of[i].is_closed = 1;
        model->of[i].listener = NONE;
    }
    own->waiting = 0;
    own->is_closed = 1;
}

static void let_go(int slot) {
    struct object *own = object_of(slot);
    slots[slot] = -1;
    model->slots[own_role][slot] = NONE;
    if (own && --own->holders == 0)
        end_of(own, 0);
}

/* The same descriptors mean an unconnected socket from now on. */
static void dissolved(struct object *own) {
    int index = own - model->of, fresh = new_object(FRESH);
    end_of(own, 1);
    model->of[fresh].holders = own->holders;
    for (int i = 0; i < 2 * SLOTS; i++)
        if (model->slots[i / SLOTS][i % SLOTS] == index)
            model->slots[i / SLOTS][i % SLOTS] = fresh;
}

static void connected(struct object *own, int listening, int fd, int is_connecting) {
    int other = new_object(STREAM), index = own - model->of;
    own->kind = STREAM;
    own->peer = other;
    own->port = port_of(fd);
    own->is_connecting = is_connecting;
    model->of[other].peer = index;
    model->of[other].port = own->port;
    model->of[other].listener = listening;
    model->of[other].aborts = model->of[listening].aborts;
    model->of[listening].waiting++;
}

/* The connection at a listener whose client has this port. */
static int waiting_from(int listening, int port) {
    for (int i = 0; i < model->objects; i++)
        if (model->of[i].listener == listening && model->of[i].port == port)
            return i;
    return NONE;
}

static int first_waiting(int listening) {
    for (int i = 0; i < model->objects; i++)
        if (model->of[i].listener == listening)
            return i;
    return NONE;
}

static void wrote(struct object *own, long bytes, int is_urgent) {
    if (!own || own->kind != STREAM || bytes <= 0)
        return;
    struct object *peer = peer_of(own);
    if (peer->is_closed || (peer->shut_read && peer->shut_write)) {
        reset(own);
        reset(peer);
        return;
    }
    peer->unread += bytes;
    peer->has_urgent |= is_urgent;
}

static void took(struct object *own, long bytes) {
    if (own && bytes > 0)
        own->unread -= bytes;
}

static void shut(struct object *own, int how) {
    if (own->kind == LISTENER && how != SHUT_WR) {
        end_of(own, 0);
        own->kind = FRESH;
        own->is_closed = 0;
    }
    own->shut_read |= own->kind == STREAM && how != SHUT_WR;
    own->shut_write |= own->kind == STREAM && how != SHUT_RD;
}

/* Whether everything that was sent to a socket has come. */
static int has_all(int fd, const struct object *own) {
    struct pollfd look = {.fd = fd, .events = POLLRDHUP | POLLIN};
    int wanted = 0, bytes = 0;
    if (own->kind == LISTENER && own->waiting)
        wanted = POLLIN;
    if (own->kind == STREAM && (peer_of(own)->shut_write || peer_of(own)->is_closed))
        wanted = POLLRDHUP;
    if (own->kind == STREAM && own->is_reset)
        wanted = POLLHUP;
    if (wanted && (poll(&look, 1, 0) < 0 || (look.revents & wanted) == 0))
        return 0;
    if (own->kind != STREAM || own->is_reset || own->has_urgent)
        return 1;
    return ioctl(fd, FIONREAD, &bytes) == 0 && bytes >= own->unread;
}

static void settle(void) {
    for (int slot = 0; slot < SLOTS; slot++) {
        struct object *own = object_of(slot);
        double begin = own ? now_s() : 0;
        while (own && !has_all(slots[slot], own)) {
            if (now_s() - begin > patience_s) {
                say("slot %d never has all that was sent to it", slot);
                break;
            }
            usleep(20);
        }
    }
}
#endif
