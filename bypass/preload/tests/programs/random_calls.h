/* The calls of random_calls.c: each chooses its arguments by the dice, says what it gave, and notes it in the model. */
#ifndef RANDOM_CALLS_H
#define RANDOM_CALLS_H
#include <sys/sendfile.h>
#include "random_model.h"

#define SETS 2
#define BYTES_MAX 12000 /* unread in one direction: less than any buffer holds */
#define TIME_MS 40      /* a whole number of ticks of any kernel */
#define ROOM 4096
#define FILE_BYTES 400

static uint64_t dice;
static int sets[SETS], ends_of_pipe[2], file;
static volatile int broken_pipes;
static unsigned char buffer[ROOM];

static unsigned pick(unsigned sides) {
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return (unsigned)((dice >> 33) % sides);
}

#define ONE_OF(list) (list)[pick(sizeof(list) / sizeof *(list))]

static void count_broken_pipe(int signal) {
    (void)signal;
    broken_pipes++;
}

static void say_bytes(long count) {
    if (count > 0)
        say("  bytes %llx", (unsigned long long)checksum(1, buffer, count));
}

/* Making sockets and ending them. */

/* No call waits for long, and no byte for the acknowledgement of another. */
static void limit_waits(int fd) {
    struct timeval time = {.tv_usec = TIME_MS * 1000};
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time);
}

static void call_close(int slot) {
    int index = model->slots[own_role][slot];
    if (index == NONE)
        return;
    result("close", close(slots[slot]));
    let_go(slot);
}

static void call_socket(int slot) {
    static const int flags[] = {0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC};
    if (slots[slot] >= 0)
        call_close(slot);
    int fd = socket(AF_INET, SOCK_STREAM | ONE_OF(flags), 0);
    need(fd >= 0, "socket");
    limit_waits(fd);
    hold(slot, fd, new_object(FRESH));
    say("socket in slot %d, object %d", slot, model->slots[own_role][slot]);
}

static void call_bind(int slot) {
    static const int lengths[] = {16, 16, 16, 128, 15, 2, 0};
    static const char *const addresses[] = {"127.0.0.1", "127.0.0.1", "0.0.0.0", "192.0.2.1"};
    struct sockaddr_storage room = {0};
    struct sockaddr_in name = ipv4(ONE_OF(addresses), 0);
    /* The kernel says first what is wrong with the address. */
    if (object_of(slot) && object_of(slot)->kind == STREAM)
        return;
    if (pick(8) == 0)
        name.sin_family = AF_INET6;
    memcpy(&room, &name, sizeof name);
    result("bind", bind(slots[slot], (struct sockaddr *)&room, ONE_OF(lengths)));
}

static void call_listen(int slot) {
    struct object *own = object_of(slot);
    if (own && own->is_spoiled)
        return;
    int done = result("listen", listen(slots[slot], 16 + pick(3)));
    if (done < 0 || own->kind == LISTENER)
        return;
    own->kind = LISTENER;
    own->port = port_of(slots[slot]);
    /* From its first accept on a process has the connections that others make. */
    int fd = slots[slot], flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    result("first accept", accept(fd, NULL, NULL));
    fcntl(fd, F_SETFL, flags);
}

/* Any listener, of either role, that has room. */
static int some_listener(void) {
    int first = pick(OBJECTS_MAX);
    for (int i = 0; i < model->objects; i++) {
        int index = (first + i) % model->objects;
        const struct object *it = &model->of[index];
        if (it->kind == LISTENER && !it->is_closed && it->waiting < 8)
            return index;
    }
    return NONE;
}

static void call_connect(int slot) {
    struct object *own = object_of(slot);
    struct sockaddr_in name = ipv4("127.0.0.1", 1);
    int listening = pick(10) ? some_listener() : NONE, is_dissolving = pick(12) == 0;
    if (own && own->is_spoiled && !is_dissolving)
        return;
    if (listening != NONE)
        name.sin_port = htons(model->of[listening].port);
    if (is_dissolving)
        name.sin_family = AF_UNSPEC;
    int done = connect(slots[slot], (struct sockaddr *)&name, pick(20) ? sizeof name : pick(16));
    int is_begun = done < 0 && errno == EINPROGRESS, is_failed = done < 0 && !is_begun;
    int stays = errno == EISCONN || errno == EINVAL;
    result(is_dissolving ? "dissolve" : listening == NONE ? "connect to no listener" : "connect", done);
    if (!own)
        return;
    if (is_dissolving && done == 0)
        dissolved(own);
    else if (own->kind == FRESH && !is_failed && listening != NONE && !is_dissolving)
        connected(own, listening, slots[slot], is_begun);
    else if (own->is_connecting && done == 0)
        own->is_connecting = 0;
    else if (own->is_connecting && is_failed && !stays)
        dissolved(own);
}

/* Which connection an accepted descriptor belongs to, and a slot for it. */
static void note_accepted(int listening, int fd) {
    struct sockaddr_in name = {0};
    socklen_t length = sizeof name;
    /* One that was reset says its client's name no more: it is the first that waits. */
    int is_named = getpeername(fd, (struct sockaddr *)&name, &length) == 0;
    int index = is_named ? waiting_from(listening, ntohs(name.sin_port)) : first_waiting(listening);
    int place = free_slot(own_role);
    if (index == NONE) {
        say("  a connection that no role has made");
        close(fd);
        return;
    }
    say("  object %d in slot %d", index, place);
    model->of[index].listener = NONE;
    model->of[listening].waiting--;
    if (place == NONE) {
        close(fd);
        end_of(&model->of[index], 0);
        return;
    }
    limit_waits(fd);
    hold(place, fd, index);
}

static void call_accept(int slot) {
    static const int flags[] = {0, 0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC, 1};
    static const socklen_t rooms[] = {16, 16, 128, 8, 0};
    struct sockaddr_storage given = {0};
    socklen_t room = ONE_OF(rooms), before = room;
    int has_name = pick(2), flag = ONE_OF(flags);
    int fd = accept4(slots[slot], has_name ? (void *)&given : NULL, has_name ? &room : NULL, flag);
    outcome("accept", fd);
    if (fd < 0)
        return;
    if (has_name)
        say("  name of %u bytes in room for %u, family %d", room, before, given.ss_family);
    say("  flags %x, close-on-exec %d", fcntl(fd, F_GETFL), fcntl(fd, F_GETFD));
    note_accepted(model->slots[own_role][slot], fd);
}

static void call_shutdown(int slot) {
    static const int ways[] = {SHUT_RD, SHUT_WR, SHUT_WR, SHUT_RDWR, 3, -1};
    struct object *own = object_of(slot);
    int how = ONE_OF(ways);
    if (shutdown(slots[slot], how) == 0) {
        say("shutdown %d", how);
        shut(own, how);
    } else {
        say("shutdown %d: %s", how, strerrorname_np(errno));
        if (own && own->kind == FRESH && errno == ENOTCONN)
            own->is_spoiled = 1;
    }
}

static void call_duplicate(int slot) {
    int index = model->slots[own_role][slot], place = free_slot(own_role), other = pick(SLOTS), fd;
    unsigned how = pick(6);
    if (index == NONE || (how < 4 && place == NONE) || (how >= 4 && slots[other] < 0))
        return;
    int to = how >= 4 ? slots[other] : 0;
    fd = how == 0   ? dup(slots[slot])
         : how == 1 ? fcntl(slots[slot], F_DUPFD, 30)
         : how == 2 ? fcntl(slots[slot], F_DUPFD_CLOEXEC, 0)
         : how == 3 ? dup3(slots[slot], slots[slot], O_CLOEXEC)
         : how == 4 ? dup2(slots[slot], to)
                    : dup3(slots[slot], to, pick(4) ? O_CLOEXEC : O_NONBLOCK);
    say("duplicate %u: %s", how, fd < 0 ? strerrorname_np(errno) : "works");
    if (fd < 0 || fd == slots[slot])
        return;
    if (how >= 4) {
        let_go(other);
        place = other;
    }
    hold(place, fd, index);
    say("  close-on-exec %d", fcntl(fd, F_GETFD));
}

/* Bytes. */

/* The buffer in up to four pieces, some of them empty. */
static int cut(struct iovec *pieces, size_t length) {
    int count = 1 + pick(4);
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        size_t part = i == count - 1 ? length - at : pick(length - at + 1);
        pieces[i] = (struct iovec){buffer + at, part};
        at += part;
    }
    return count;
}

static const int SENDING[] = {0, 0, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_CONFIRM, MSG_EOR, MSG_DONTROUTE};

static long send_so(int fd, size_t length, int flags) {
    struct sockaddr_in name = ipv4("127.0.0.1", 9);
    struct iovec pieces[4];
    int count = cut(pieces, length);
    struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
    struct mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
    switch (pick(8)) {
    case 0:
        return result("write", write(fd, buffer, length));
    case 1:
        return result("writev", writev(fd, pieces, pick(20) ? count : (int)pick(2) * 1026 - 1));
    case 2:
        if (pick(2))
            message.msg_name = &name, message.msg_namelen = sizeof name;
        return result("sendmsg", sendmsg(fd, &message, flags));
    case 3: {
        messages[1].msg_hdr.msg_iovlen = 1;
        int sent = result("sendmmsg", sendmmsg(fd, messages, 1 + pick(2), flags));
        return sent < 0 ? sent : (long)messages[0].msg_len + (sent > 1 ? messages[1].msg_len : 0);
    }
    case 4:
        return result("sendto", sendto(fd, buffer, length, flags, (void *)&name, sizeof name));
    case 5:
        return result("pwritev2", pwritev2(fd, pieces, count, pick(6) ? -1 : 0, 0));
    default:
        return result("send", send(fd, buffer, length, flags));
    }
}

static void call_send(int slot) {
    struct object *own = object_of(slot);
    size_t length = pick(6) ? pick(200) : pick(1500);
    int flags = ONE_OF(SENDING);
    if (own && own->kind == STREAM) {
        struct object *peer = peer_of(own);
        if (peer->unread + 2 * length > BYTES_MAX)
            return;
        /* The kernel holds this back for 200 ms. */
        if (pick(60) == 0)
            flags = MSG_MORE;
        /* A second urgent byte before the first was read is a known difference. */
        if (pick(20) == 0 && !peer->has_urgent)
            flags = MSG_OOB;
    }
    fill(buffer, length, dice);
    long done = send_so(slots[slot], length, flags);
    say("  of %zu bytes with flags %x", length, flags);
    wrote(own, done, flags & MSG_OOB);
}

static const int RECEIVING[] = {0,
                                0,
                                0,
                                MSG_DONTWAIT,
                                MSG_PEEK,
                                MSG_WAITALL,
                                MSG_TRUNC,
                                MSG_PEEK | MSG_TRUNC,
                                MSG_PEEK | MSG_WAITALL,
                                MSG_WAITALL | MSG_DONTWAIT,
                                MSG_OOB,
                                MSG_OOB | MSG_PEEK,
                                MSG_ERRQUEUE,
                                MSG_CMSG_CLOEXEC};

static long receive_message(int fd, struct iovec *pieces, int count, int flags) {
    char name[32], control[64];
    struct msghdr message = {.msg_iov = pieces,
                             .msg_iovlen = count,
                             .msg_name = pick(2) ? name : NULL,
                             .msg_namelen = sizeof name,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    long got = result("recvmsg", recvmsg(fd, &message, flags));
    if (got >= 0)
        say("  name %u, control %zu, flags %x", message.msg_namelen, message.msg_controllen,
            message.msg_flags);
    return got;
}

static long receive_so(int fd, size_t length, int *flags) {
    struct sockaddr_storage name;
    socklen_t room = sizeof name;
    struct iovec pieces[4];
    int count = cut(pieces, length);
    struct mmsghdr messages[2] = {{.msg_hdr = {.msg_iov = pieces, .msg_iovlen = count}}};
    messages[1] = messages[0];
    long got;
    switch (pick(8)) {
    case 0:
        *flags = 0;
        return result("read", read(fd, buffer, length));
    case 1:
        *flags = 0;
        return result("readv", readv(fd, pieces, pick(20) ? count : (int)pick(2) * 1026 - 1));
    case 2:
        return receive_message(fd, pieces, count, *flags);
    case 3:
        got = result("recvfrom", recvfrom(fd, buffer, length, *flags, (void *)&name, &room));
        if (got >= 0)
            say("  name of %u", room);
        return got;
    case 4:
        *flags &= ~(MSG_PEEK | MSG_TRUNC);
        got = result("recvmmsg", recvmmsg(fd, messages, 1 + pick(2), *flags | MSG_WAITFORONE, NULL));
        return got < 0 ? got : (long)messages[0].msg_len + (got > 1 ? messages[1].msg_len : 0);
    case 5:
        *flags = 0;
        return result("preadv2", preadv2(fd, pieces, count, pick(6) ? -1 : 0, 0));
    default:
        return result("recv", recv(fd, buffer, length, *flags));
    }
}

static void call_receive(int slot) {
    size_t length = pick(4) ? pick(200) : pick(2000);
    int flags = ONE_OF(RECEIVING);
    memset(buffer, 0, sizeof buffer);
    long got = receive_so(slots[slot], length, &flags);
    say("  of %zu bytes with flags %x", length, flags);
    if (!(flags & MSG_TRUNC))
        say_bytes(got);
    if (!(flags & (MSG_PEEK | MSG_OOB)))
        took(object_of(slot), got);
}

static void call_send_file(int slot) {
    struct object *own = object_of(slot);
    off_t offset = pick(FILE_BYTES + 50);
    int is_there = pick(2);
    if (own && own->kind == STREAM && peer_of(own)->unread + FILE_BYTES > BYTES_MAX)
        return;
    lseek(file, pick(FILE_BYTES), SEEK_SET);
    long sent = sendfile(slots[slot], pick(10) ? file : slots[pick(SLOTS)], is_there ? &offset : NULL,
                         pick(FILE_BYTES));
    result("sendfile", sent);
    say("  at %ld, offset %ld", (long)lseek(file, 0, SEEK_CUR), (long)offset);
    wrote(own, sent, 0);
}

static void call_splice(int slot) {
    struct object *own = object_of(slot);
    unsigned flags = pick(2) ? SPLICE_F_NONBLOCK : 0;
    size_t length = 1 + pick(200);
    if (pick(2)) {
        if (own && own->kind == STREAM && peer_of(own)->unread + length > BYTES_MAX)
            return;
        fill(buffer, length, dice);
        need(write(ends_of_pipe[1], buffer, length) == (ssize_t)length, "pipe");
        wrote(own, result("splice into", splice(ends_of_pipe[0], NULL, slots[slot], NULL, length, flags)), 0);
    } else {
        long got = splice(slots[slot], NULL, ends_of_pipe[1], NULL, length, flags);
        took(own, result("splice from", got));
    }
    say_bytes(result("  in the pipe", read(ends_of_pipe[0], buffer, sizeof buffer)));
}

/* Questions. */

static void call_flags(int slot) {
    int fd = slots[slot], on = pick(2), value = -1;
    switch (pick(6)) {
    case 0:
        result("F_GETFL", fcntl(fd, F_GETFL));
        result("F_GETFD", fcntl(fd, F_GETFD));
        break;
    case 1:
        result("F_SETFL", fcntl(fd, F_SETFL, on ? O_NONBLOCK : 0));
        break;
    case 2:
        result("FIOCLEX", ioctl(fd, on ? FIOCLEX : FIONCLEX));
        break;
    case 3:
        result("FIONBIO", ioctl(fd, FIONBIO, &on));
        break;
    case 4:
        result("F_SETFD", fcntl(fd, F_SETFD, on));
        break;
    default:
        result("FIONREAD", ioctl(fd, FIONREAD, &value));
        say("  %d", value);
        value = -1;
        result("SIOCATMARK", ioctl(fd, SIOCATMARK, &value));
        say("  %d", value);
    }
}

static void call_name(int slot) {
    static const socklen_t rooms[] = {128, 16, 8, 2, 0, -1};
    struct sockaddr_in name = {0};
    struct sockaddr_storage room = {0};
    socklen_t length = ONE_OF(rooms);
    int is_peer = pick(2);
    int done = (is_peer ? getpeername : getsockname)(slots[slot], (struct sockaddr *)&room, &length);
    result(is_peer ? "getpeername" : "getsockname", done);
    memcpy(&name, &room, sizeof name);
    say("  %d: family %d, %s, %s", length, name.sin_family, inet_ntoa(name.sin_addr),
        name.sin_port ? "a port" : "no port");
}

struct option {
    int level, name, values[3];
};
/* Which both sides of the comparison keep: sizes of buffers and facts of the path are left out. */
static const struct option OPTIONS[] = {
    {SOL_SOCKET, SO_REUSEADDR, {0, 1, 7}},     {SOL_SOCKET, SO_KEEPALIVE, {0, 1, -1}},
    {SOL_SOCKET, SO_OOBINLINE, {0, 1, 2}},     {SOL_SOCKET, SO_RCVLOWAT, {0, 1, 30}},
    {SOL_SOCKET, SO_PRIORITY, {0, 3, 6}},      {SOL_SOCKET, SO_BROADCAST, {0, 1, 1}},
    {SOL_SOCKET, SO_DONTROUTE, {0, 1, 1}},     {SOL_SOCKET, SO_ERROR, {0, 1, 2}},
    {SOL_SOCKET, SO_TYPE, {0, 1, 2}},          {SOL_SOCKET, SO_ACCEPTCONN, {0, 1, 2}},
    {SOL_SOCKET, SO_PROTOCOL, {0, 1, 2}},      {SOL_SOCKET, SO_DOMAIN, {0, 1, 2}},
    {IPPROTO_TCP, TCP_NODELAY, {0, 1, -1}},    {IPPROTO_TCP, TCP_CORK, {0, 0, 0}},
    {IPPROTO_TCP, TCP_KEEPIDLE, {0, 10, 99}},  {IPPROTO_TCP, TCP_KEEPINTVL, {1, 40000, 9}},
    {IPPROTO_TCP, TCP_KEEPCNT, {1, 128, 9}},   {IPPROTO_TCP, TCP_SYNCNT, {1, 256, 3}},
    {IPPROTO_TCP, TCP_LINGER2, {0, 5, 20}},    {IPPROTO_TCP, TCP_USER_TIMEOUT, {0, 5000, -1}},
    {IPPROTO_IP, IP_TOS, {0, 16, 255}},        {IPPROTO_IP, IP_TTL, {1, 64, 256}},
    {IPPROTO_IP, IP_FREEBIND, {0, 1, 1}},      {IPPROTO_IP, IP_RECVERR, {0, 1, 1}},
    {SOL_SOCKET, 9999, {0, 1, 2}},             {9999, 1, {0, 1, 2}},
};

static void set_linger(int slot) {
    struct object *own = object_of(slot);
    struct linger linger = {(int)pick(3) - 1, (int)pick(3)};
    int done = result("SO_LINGER", setsockopt(slots[slot], SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
    say("  to %d %d", linger.l_onoff, linger.l_linger);
    if (done == 0)
        own->aborts = linger.l_onoff != 0 && linger.l_linger == 0;
}

static void call_option(int slot) {
    const struct option *option = &ONE_OF(OPTIONS);
    char bytes[16] = "";
    int value = ONE_OF(option->values);
    socklen_t length = pick(10) ? sizeof value : pick(9);
    unsigned how = pick(6);
    if (how == 0)
        set_linger(slot);
    if (how == 1) {
        struct linger linger = {-1, -1};
        length = sizeof linger;
        result("SO_LINGER", getsockopt(slots[slot], SOL_SOCKET, SO_LINGER, &linger, &length));
        say("  is %d %d", linger.l_onoff, linger.l_linger);
    }
    if (how == 2 || how == 3) {
        memcpy(bytes, &value, sizeof value);
        int done = setsockopt(slots[slot], option->level, option->name, bytes, length);
        say("set %d %d to %d, %u bytes: %s", option->level, option->name, value, length,
            done ? strerrorname_np(errno) : "works");
    }
    if (how > 3) {
        int done = getsockopt(slots[slot], option->level, option->name, bytes, &length);
        memcpy(&value, bytes, sizeof value);
        say("get %d %d: %s, %d in %u bytes", option->level, option->name,
            done ? strerrorname_np(errno) : "works", value, length);
    }
}

static void call_poll(int unused) {
    (void)unused;
    struct pollfd all[SLOTS + SETS];
    fd_set read, write, except;
    struct timeval time = {.tv_usec = pick(2) * 1000};
    FD_ZERO(&read);
    for (int i = 0; i < SLOTS; i++) {
        short events = pick(4) ? POLLIN | POLLOUT | POLLPRI | POLLRDHUP : pick(2) ? POLLIN | POLLRDNORM : 0;
        all[i] = (struct pollfd){.fd = slots[i], .events = events};
        if (slots[i] >= 0 && pick(3))
            FD_SET(slots[i], &read);
    }
    for (int i = 0; i < SETS; i++)
        all[SLOTS + i] = (struct pollfd){.fd = sets[i], .events = POLLIN};
    write = except = read;
    if (pick(3)) {
        result("poll", poll(all, SLOTS + SETS, pick(2) * 2));
        for (int i = 0; i < SLOTS + SETS; i++)
            say("  %d %s", i, events(all[i].revents));
        return;
    }
    result("select", select(FD_SETSIZE, &read, pick(4) ? &write : NULL, pick(4) ? &except : NULL, &time));
    for (int i = 0; i < SLOTS; i++)
        if (slots[i] >= 0)
            say("  %d %d%d%d", i, FD_ISSET(slots[i], &read) != 0, FD_ISSET(slots[i], &write) != 0,
                FD_ISSET(slots[i], &except) != 0);
}

static const unsigned EVENTS[] = {EPOLLIN,
                                  EPOLLIN | EPOLLOUT | EPOLLRDHUP,
                                  EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                  EPOLLIN | EPOLLET,
                                  EPOLLIN | EPOLLONESHOT,
                                  EPOLLIN | EPOLLOUT | EPOLLONESHOT | EPOLLET,
                                  EPOLLPRI | EPOLLRDHUP,
                                  EPOLLIN | EPOLLEXCLUSIVE,
                                  0};

static void call_control(int slot) {
    static const int commands[] = {EPOLL_CTL_ADD, EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, 9};
    int command = ONE_OF(commands), set = pick(SETS), is_nested = pick(30) == 0;
    struct epoll_event event = {.events = ONE_OF(EVENTS)};
    event.data.u32 = is_nested ? 1000 : model->slots[own_role][slot];
    int done = epoll_ctl(sets[set], command, is_nested ? sets[pick(SETS)] : slots[slot], &event);
    say("epoll_ctl %d of set %d, events %x: %s", command, set, event.events,
        done ? strerrorname_np(errno) : "works");
}

static int by_data(const void *left, const void *right) {
    const struct epoll_event *one = left, *other = right;
    if (one->data.u32 != other->data.u32)
        return one->data.u32 < other->data.u32 ? -1 : 1;
    return (one->events > other->events) - (one->events < other->events);
}

static void call_wait(int unused) {
    (void)unused;
    struct epoll_event found[2 * SLOTS];
    struct timespec time = {.tv_nsec = pick(2) * 1000000};
    int set = pick(SETS), count;
    if (pick(2))
        count = result("epoll_wait", epoll_wait(sets[set], found, 2 * SLOTS, pick(2)));
    else
        count = result("epoll_pwait2", epoll_pwait2(sets[set], found, 2 * SLOTS, &time, NULL));
    qsort(found, count > 0 ? count : 0, sizeof *found, by_data);
    for (int i = 0; i < count; i++)
        say("  set %d: object %d %s", set, (int)found[i].data.u32, events(found[i].events));
}

/* Calls that are not meant for sockets. */
static void call_odd(int slot) {
    struct stat about = {0};
    int fd = slots[slot];
    switch (pick(6)) {
    case 0:
        result("lseek", lseek(fd, 0, SEEK_SET));
        break;
    case 1:
        result("pread", pread(fd, buffer, 4, 0));
        break;
    case 2:
        result("pwrite", pwrite(fd, buffer, 4, 0));
        break;
    case 3:
        result("fsync", fsync(fd));
        break;
    case 4:
        result("ftruncate", ftruncate(fd, 0));
        break;
    default:
        result("fstat", fstat(fd, &about));
        say("  socket %d", S_ISSOCK(about.st_mode));
    }
}

/* A child makes one call, with all descriptors that its parent has. */
static void call_fork(int slot) {
    unsigned which = pick(5);
    int status = 0;
    /* The error of a dissolved connection is reported to each process. */
    if (object_of(slot) && object_of(slot)->kind != STREAM)
        return;
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
        if (which < 2)
            call_send(slot);
        else if (which < 4)
            call_receive(slot);
        else
            call_shutdown(slot);
        _exit(broken_pipes);
    }
    need(waitpid(child, &status, 0) == child, "waitpid");
    say("the child has the status %d", status);
}
#endif
