//! Options about several processes behind one port, and about ports and filters.

use crate::definition::{number, switch, text, Definition, Group};

const COUNT_MAX: i64 = 1 << 30;
const NO_FILTERS: &str = "no card filters are used: frames are steered by port and queue";
const NO_PORTS: &str =
    "source ports of accelerated connections are bookkeeping only and reused at once";

pub(super) const OPTIONS: &[Definition] = &[
    text(
        "EF_CLUSTER_NAME",
        "",
        "Name of a group of processes that share a port",
    )
    .of(Group::Clusters)
    .does("over packets, programs with the same name share the queues of an interface; `bypass stat` shows the name, and a profile waits for its processes to end at a cold restart"),
    number(
        "EF_CLUSTER_SIZE",
        "0",
        0..=4096,
        "How many members the group has",
    )
    .of(Group::Clusters)
    .long("The nginx profiles set it to the number of workers in the configuration.")
    .does("over packets, the processes that share the queues of an interface; any number of listeners may share a port"),
    switch("EF_CLUSTER_IGNORE", false, "Do not form a group")
        .of(Group::Clusters)
        .does("over packets, one process uses all queues of an interface, and passes connections to the others"),
    switch(
        "EF_CLUSTER_RESTART",
        false,
        "Replace the leftovers of a dead member",
    )
    .of(Group::Clusters)
    .inert("a dead process leaves nothing behind: its entries end with it"),
    switch(
        "EF_CLUSTER_HOT_RESTART",
        false,
        "Old and new processes may share the port for a while",
    )
    .of(Group::Clusters)
    .inert("always so: each listener is found by its own socket, whoever else has the port"),
    text(
        "EF_SCALABLE_FILTERS",
        "",
        "One filter for all connections of a kind, e.g. any=rss:active",
    )
    .of(Group::Ports)
    .inert(NO_FILTERS),
    number(
        "EF_SCALABLE_FILTERS_ENABLE",
        "0",
        0..=2,
        "Use EF_SCALABLE_FILTERS: no, yes, workers",
    )
    .of(Group::Ports)
    .inert(NO_FILTERS),
    number(
        "EF_SCALABLE_LISTEN_MODE",
        "0",
        0..=1,
        "Which listeners a scalable filter serves",
    )
    .of(Group::Ports)
    .inert(NO_FILTERS),
    text(
        "EF_TCP_FORCE_REUSEPORT",
        "0",
        "Ports whose listeners get SO_REUSEPORT automatically",
    )
    .of(Group::Ports)
    .inert("listeners are bound by the kernel exactly as the program asked"),
    text(
        "EF_UDP_FORCE_REUSEPORT",
        "0",
        "UDP ports that get SO_REUSEPORT automatically",
    )
    .of(Group::Ports)
    .inert("sockets are bound by the kernel exactly as the program asked"),
    number(
        "EF_TCP_SHARED_LOCAL_PORTS",
        "0",
        0..=COUNT_MAX,
        "Source ports shared over destinations",
    )
    .of(Group::Ports)
    .inert(NO_PORTS),
    number(
        "EF_TCP_SHARED_LOCAL_PORTS_MAX",
        "100",
        0..=COUNT_MAX,
        "Limit of the shared source ports",
    )
    .of(Group::Ports)
    .inert(NO_PORTS),
    switch(
        "EF_TCP_SHARED_LOCAL_PORTS_PER_IP",
        false,
        "One set of shared ports per local address",
    )
    .of(Group::Ports)
    .inert(NO_PORTS),
    number(
        "EF_TCP_SHARED_LOCAL_PORTS_PER_IP_MAX",
        "0",
        0..=COUNT_MAX,
        "Limit of each such set",
    )
    .of(Group::Ports)
    .inert(NO_PORTS),
    number(
        "EF_TCP_SHARED_LOCAL_PORTS_STEP",
        "1",
        0..=COUNT_MAX,
        "Ports added at a time",
    )
    .of(Group::Ports)
    .inert(NO_PORTS),
    switch(
        "EF_TCP_SHARED_LOCAL_PORTS_REUSE_FAST",
        false,
        "Reuse a port as soon as it is closed",
    )
    .of(Group::Ports)
    .inert("over shared memory no connection enters TIME_WAIT; over packets TIME_WAIT applies"),
    switch(
        "EF_TCP_SHARED_LOCAL_PORTS_NO_FALLBACK",
        false,
        "Fail when no shared port is left",
    )
    .of(Group::Ports)
    .inert(NO_PORTS),
];
