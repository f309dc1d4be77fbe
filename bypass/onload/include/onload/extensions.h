/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of Onload's extension API that bypass carries out, with Onload's names and numbers. A program that uses it
 * is linked with libonload_ext, and runs with and without bypass: docs/onload-extensions.md. */
#ifndef ONLOAD_EXTENSIONS_H
#define ONLOAD_EXTENSIONS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 1 under bypass, 0 without. */
extern int onload_is_present(void);

/* Of an accelerated socket. The caller frees the name, which is null under bypass. */
struct onload_stat {
    int32_t stack_id;       /* the process, as `bypass stat` and onload_stackdump name it */
    char *stack_name;
    int32_t endpoint_id;    /* the descriptor */
    int32_t endpoint_state; /* for people who debug; its meaning may change */
};

/* 1, and what is known of the socket; 0 when the kernel handles the descriptor. What a socket becomes is decided by
 * bind, listen and connect: ask after them. */
extern int onload_fd_stat(int fd, struct onload_stat *stat);

enum onload_fd_feature {
    ONLOAD_FD_FEAT_MSG_WARM = 0,
    ONLOAD_FD_FEAT_UDP_TX_TS_HDR = 1
};

/* A flag of sends: on an accelerated socket nothing is sent and the result is 0. The kernel sends: ask onload_fd_stat. */
#define ONLOAD_MSG_WARM 0x400

/* 0 for both: bypass has neither. -EOPNOTSUPP for others, -ENOSYS without bypass. */
extern int onload_fd_check_feature(int fd, enum onload_fd_feature feature);

/* 0 for an accelerated socket, which is in the only stack of its process; -1 for a listener and for the kernel's. */
extern int onload_move_fd(int fd);

enum onload_spin_type {
    ONLOAD_SPIN_ALL,
    ONLOAD_SPIN_UDP_RECV,
    ONLOAD_SPIN_UDP_SEND,
    ONLOAD_SPIN_TCP_RECV,
    ONLOAD_SPIN_TCP_SEND,
    ONLOAD_SPIN_TCP_ACCEPT,
    ONLOAD_SPIN_PIPE_RECV,
    ONLOAD_SPIN_PIPE_SEND,
    ONLOAD_SPIN_SELECT,
    ONLOAD_SPIN_POLL,
    ONLOAD_SPIN_PKT_WAIT,
    ONLOAD_SPIN_EPOLL_WAIT,
    ONLOAD_SPIN_STACK_LOCK,
    ONLOAD_SPIN_SOCK_LOCK,
    ONLOAD_SPIN_SO_BUSY_POLL,
    ONLOAD_SPIN_TCP_CONNECT,
    ONLOAD_SPIN_MIMIC_EF_POLL, /* the types that EF_POLL_USEC turns on */
    ONLOAD_SPIN_MAX
};

/* Whether the calling thread spins in such calls, for as long as EF_POLL_USEC or EF_SPIN_USEC says. 0, or -EINVAL. */
extern int onload_thread_set_spin(enum onload_spin_type type, int spin);

/* A bit for each type, 1 << type. 0, or -ENOSYS without bypass. */
extern int onload_thread_get_spin(unsigned *state);

enum onload_stackname_who { ONLOAD_THIS_THREAD, ONLOAD_ALL_THREADS };

enum onload_stackname_scope {
    ONLOAD_SCOPE_NOCHANGE,
    ONLOAD_SCOPE_THREAD,
    ONLOAD_SCOPE_PROCESS,
    ONLOAD_SCOPE_USER,
    ONLOAD_SCOPE_GLOBAL
};

#define ONLOAD_DONT_ACCELERATE NULL

/* With ONLOAD_DONT_ACCELERATE sockets made from now on are left to the kernel; with a name they are accelerated again;
 * ONLOAD_ALL_THREADS with ONLOAD_SCOPE_NOCHANGE changes neither: the thread follows the choice for all again. Names do not
 * divide the sockets of a process. 0, or -1 with EINVAL. */
extern int onload_set_stackname(enum onload_stackname_who who, enum onload_stackname_scope scope,
                                const char *stackname);

/* Keeps what the calling thread has set, and for whom, and sets it again: last in, first out. 0; -ENOMEM after 15 in a row;
 * -EINVAL when nothing was kept. */
extern int onload_stackname_save(void);
extern int onload_stackname_restore(void);

#ifdef __cplusplus
}
#endif
#endif
