//! Options about processes, names and messages.

use crate::definition::{number, switch, text, translations_of, Definition, Group};

pub(super) const OPTIONS: &[Definition] = &[
    switch(
        "EF_LOAD_ENV",
        true,
        "Let the environment override the profile",
    )
    .of(Group::Process)
    .long(
        "Environment beats profile beats default. With 0 the other EF_ variables of the \
             environment are ignored; what the profile says stays.",
    )
    .does("0: only the profile counts; under a bare LD_PRELOAD only the defaults"),
    number(
        "EF_LOG_VIA_IOCTL",
        "0",
        0..=2,
        "Messages to the system log in place of standard error",
    )
    .of(Group::Process)
    .does(
        "messages go to EF_LOG_FILE, else to the system log; 1 or 2: those before the program begins, about options, too",
    ),
    text(
        "EF_LOG",
        "banner,resource_warnings",
        "Which kinds of message are written",
    )
    .of(Group::Process)
    .long("Names separated by commas: resource_warnings, conn_drop, or all.")
    .does(
        "resource_warnings: interfaces and other things that are not available, and calls that fail by EF_NO_FAIL=0; \
             conn_drop: sockets that are left to the kernel, at most one per second for each reason",
    ),
    text("EF_LOG_FILE", "", "A file for messages")
        .of(Group::Process)
        .long(
            "An absolute path. The file is opened for each message, by the user that the program runs as then.",
        )
        .does("messages are appended to it; empty, or where it cannot be written: the system log (/dev/log)"),
    switch(
        "EF_LOG_TIMESTAMPS",
        false,
        "Put the time before each message",
    )
    .of(Group::Process)
    .does("1: each message begins with the seconds since 1970"),
    text(
        "EF_NAME",
        "",
        "Name of the stack, shared by processes that give the same",
    )
    .of(Group::Process)
    .inert("each process has its own; any two that may meet do meet"),
    number(
        "EF_SHARE_WITH",
        "0",
        -1..=4_294_967_294,
        "Another user whose processes may be peers: a user id, or -1 for all",
    )
    .of(Group::Process)
    .long(
        "Peers map each other's memory, so by default both belong to one user. Both sides must \
             allow it; root need not be named.",
    )
    .does("connections with that user's processes are accelerated; 0: with the own user's only"),
    text(
        "EF_SHARE_DIR",
        "",
        "A directory by which processes in different network namespaces of this host find each other",
    )
    .of(Group::Process)
    .long(
        "An absolute path of at most 60 bytes, the same directory in all containers; only its owner and its group may \
             write to it. The kernel makes each connection first; one that does not reach an accelerated server of the \
             directory is handled by the kernel. Both programs need the option, also within one namespace.",
    )
    .does("TCP connections to listeners of other network namespaces are accelerated; over IPv6 if the client has CAP_NET_RAW"),
    translations_of(
        "EF_SHARE_AS",
        "Addresses that are translated to ports of a server with EF_SHARE_DIR",
    )
    .of(Group::Process)
    .long(
        "For ports that Docker publishes, and Kubernetes services with one server: the address and port to which clients of \
             other network namespaces connect, then the server's own port. Separate entries by spaces or commas.",
    )
    .does("those clients find the server by these addresses, too"),
    number(
        "EF_FORK_NETIF",
        "3",
        0..=3,
        "Which stack a child uses after fork",
    )
    .of(Group::Process)
    .inert("connections live in memory that parent and child share; both keep them"),
    number(
        "EF_VFORK_MODE",
        "1",
        0..=2,
        "Behaviour of vfork: leave, fork, or share",
    )
    .of(Group::Process)
    .inert("vfork is fork and a wait until the child has called exec or has ended"),
    number(
        "EF_SYNC_CPLANE_AT_CREATE",
        "2",
        0..=2,
        "Wait for routes and addresses at the start",
    )
    .of(Group::Process)
    .inert("addresses are asked of the kernel when they are needed"),
    switch(
        "EF_VALIDATE_ENV",
        true,
        "Complain about EF_ names that do not exist",
    )
    .of(Group::Process)
    .does("0: unknown EF_ names in the environment are ignored"),
    number(
        "EF_SIGNALS_NOPOSTPONE",
        "67109952",
        0..=i64::MAX,
        "Signals delivered at once, as bits",
    )
    .of(Group::Process)
    .inert("signals of faults are always delivered at once, others within a microsecond"),
    switch("EF_STACK_PER_THREAD", false, "One stack for each thread")
        .of(Group::Process)
        .inert("threads share no lock except a socket's own; there is nothing to split"),
];
