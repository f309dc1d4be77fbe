//! Options about busy waiting: how long a thread polls before it sleeps in the kernel.

use crate::definition::{number, switch, Definition, Group};

const USEC_MAX: i64 = i64::MAX / 1_000;

pub(super) const OPTIONS: &[Definition] = &[
    number(
        "EF_POLL_USEC",
        "0",
        0..=USEC_MAX,
        "How long a waiting call polls before it sleeps",
    )
    .unit("µs")
    .of(Group::Spinning)
    .long(
        "Above 0 it also turns on, unless they are set, EF_EPOLL_SPIN, EF_POLL_SPIN, \
             EF_SELECT_SPIN, EF_TCP_RECV_SPIN, EF_TCP_SEND_SPIN, EF_UDP_RECV_SPIN and EF_PKT_WAIT_SPIN, and turns \
             EF_INT_DRIVEN off; accept and connect spin only when enabled. 20 shares a \
             core well; 100000 takes the whole core while there is any traffic.",
    )
    .does(
        "the limit of every spin, from the last useful event; then the thread sleeps. A thread that loses its core to \
             another one while it spins spins for at most 20 µs in the next waits",
    ),
    number(
        "EF_SPIN_USEC",
        "0",
        0..=USEC_MAX,
        "The spin limit alone, without EF_POLL_USEC's switches",
    )
    .unit("µs")
    .of(Group::Spinning)
    .does("the limit of every spin that is switched on; it wins over EF_POLL_USEC"),
    number(
        "EF_SLEEP_SPIN_USEC",
        "0",
        0..=USEC_MAX,
        "A pause between two rounds of an epoll spin",
    )
    .unit("µs")
    .of(Group::Spinning)
    .long(
        "Releases the core between rounds: less CPU at low load, up to this much latency \
             added to an event.",
    )
    .does("a sleep of this length after each round that found nothing"),
    switch(
        "EF_EPOLL_SPIN",
        false,
        "Spin in epoll_wait and its variants",
    )
    .of(Group::Spinning)
    .does("epoll_wait polls up to the spin limit before it sleeps"),
    switch("EF_POLL_SPIN", false, "Spin in poll and ppoll")
        .of(Group::Spinning)
        .does("poll polls up to the spin limit before it sleeps"),
    switch("EF_SELECT_SPIN", false, "Spin in select and pselect")
        .of(Group::Spinning)
        .inert("select is carried out as poll, so EF_POLL_SPIN decides"),
    switch(
        "EF_TCP_RECV_SPIN",
        false,
        "Spin in blocking receives on TCP sockets",
    )
    .of(Group::Spinning)
    .does("a blocking read polls up to the spin limit before it sleeps"),
    switch(
        "EF_TCP_SEND_SPIN",
        false,
        "Spin in blocking sends on TCP sockets",
    )
    .of(Group::Spinning)
    .does("a blocking write polls for space up to the spin limit before it sleeps"),
    switch("EF_TCP_ACCEPT_SPIN", false, "Spin in blocking accept")
        .of(Group::Spinning)
        .does("a blocking accept polls up to the spin limit before it sleeps"),
    switch("EF_TCP_CONNECT_SPIN", false, "Spin in blocking connect")
        .of(Group::Spinning)
        .inert("a connect that waits for an accelerated listener sleeps"),
    switch(
        "EF_UDP_RECV_SPIN",
        false,
        "Spin in blocking receives on UDP sockets",
    )
    .of(Group::Spinning)
    .does("with EF_UDP=1 a blocking receive polls up to the spin limit before it sleeps"),
    switch(
        "EF_UDP_SEND_SPIN",
        false,
        "Spin in blocking sends on UDP sockets",
    )
    .of(Group::Spinning)
    .inert("a datagram is sent at once, or by the kernel, whose own waiting applies"),
    switch(
        "EF_PKT_WAIT_SPIN",
        false,
        "Spin while no packet buffer is free",
    )
    .of(Group::Spinning)
    .inert("shared-memory rings have no packet buffers to wait for"),
    switch(
        "EF_PIPE_RECV_SPIN",
        false,
        "Spin in reads of an accelerated pipe",
    )
    .of(Group::Spinning)
    .inert("pipes stay on the kernel"),
    switch(
        "EF_PIPE_SEND_SPIN",
        false,
        "Spin in writes of an accelerated pipe",
    )
    .of(Group::Spinning)
    .inert("pipes stay on the kernel"),
    switch("EF_INT_DRIVEN", true, "Keep interrupts armed while polling")
        .of(Group::Spinning)
        .inert("no interrupts are involved: the wake-up is armed just before each sleep"),
    number(
        "EF_BUZZ_USEC",
        "0",
        0..=USEC_MAX,
        "How long to spin for a lock before sleeping on it",
    )
    .unit("µs")
    .of(Group::Spinning)
    .inert("locks are held for well under a microsecond; a waiter checks 200 times, then yields"),
    switch("EF_SOCK_LOCK_BUZZ", false, "Spin for a socket's lock")
        .of(Group::Spinning)
        .inert("locks are held for well under a microsecond; a waiter checks 200 times, then yields"),
    switch("EF_STACK_LOCK_BUZZ", false, "Spin for the stack's lock")
        .of(Group::Spinning)
        .inert("no lock covers the whole stack"),
    switch(
        "EF_SELECT_FAST",
        true,
        "Return from select without polling kernel descriptors",
    )
    .of(Group::Spinning)
    .inert("kernel descriptors are polled every 20 µs while spinning and before every sleep"),
    switch(
        "EF_POLL_FAST",
        true,
        "Return from poll without polling kernel descriptors",
    )
    .of(Group::Spinning)
    .inert("kernel descriptors are polled every 20 µs while spinning and before every sleep"),
    number(
        "EF_SELECT_FAST_USEC",
        "32",
        0..=USEC_MAX,
        "How long select may skip kernel descriptors",
    )
    .unit("µs")
    .of(Group::Spinning)
    .inert("the interval is fixed at 20 µs"),
    number(
        "EF_POLL_FAST_USEC",
        "32",
        0..=USEC_MAX,
        "How long poll may skip kernel descriptors",
    )
    .unit("µs")
    .of(Group::Spinning)
    .inert("the interval is fixed at 20 µs"),
    number(
        "EF_SELECT_NONBLOCK_FAST_USEC",
        "200",
        0..=USEC_MAX,
        "How long a non-blocking select may skip kernel descriptors",
    )
    .unit("µs")
    .of(Group::Spinning)
    .inert("a call with timeout 0 always polls kernel descriptors"),
    number(
        "EF_POLL_NONBLOCK_FAST_USEC",
        "200",
        0..=USEC_MAX,
        "How long a non-blocking poll may skip kernel descriptors",
    )
    .unit("µs")
    .of(Group::Spinning)
    .inert("a call with timeout 0 always polls kernel descriptors"),
];
