//! Options about sockets, descriptors, epoll sets and the memory behind them.

use crate::definition::{networks_of, number, switch, text, Definition, Group};

const COUNT_MAX: i64 = 1 << 30;
const NO_PACKETS: &str = "shared-memory rings need no packet buffers";

pub(super) const OPTIONS: &[Definition] = &[
    switch("EF_TCP_CLIENT_LOOPBACK", true, "Accelerate connections to an address of this host")
        .of(Group::Acceleration)
        .long(
            "Unlike Onload, where loopback is off by default, this is the main path here. ss, \
             conntrack, nft, tc and cgroup BPF do not see accelerated connections; 0 brings them \
             back to the kernel.",
        )
        .does("0: connect goes to the kernel"),
    switch("EF_TCP_SERVER_LOOPBACK", true, "Accelerate connections from this host")
        .of(Group::Acceleration)
        .does("0: listeners are not announced to other accelerated processes"),
    switch("EF_DONT_ACCELERATE", false, "Load the library but accelerate nothing")
        .of(Group::Acceleration)
        .does("1: every socket is a kernel socket; useful for comparing"),
    switch("EF_NO_HW", false, "Use no network card")
        .of(Group::Acceleration)
        .inert("interfaces are used only where --interface or EF_INTERFACE_WHITELIST names them"),
    switch("EF_NO_FAIL", true, "Use the kernel when a resource is missing, without an error")
        .of(Group::Acceleration)
        .long(
            "For a service that must not run on the kernel unnoticed. Connections to other hosts without an interface, \
             processes that are switched off by bypass off or left out by --only and --except, and connections that \
             come to a listener by the kernel are not concerned.",
        )
        .does("0: a connect or listen that would be left to the kernel fails with EOPNOTSUPP, and a message says why"),
    switch("EF_UDP", false, "Accelerate UDP sockets")
        .of(Group::Acceleration)
        .long(
            "Over the interfaces that are named, with other hosts. Unlike Onload, where it is on by \
             default: here UDP of the same host stays on the kernel, and an accelerated socket \
             makes more system calls for the part that the kernel still handles.",
        )
        .does("1: datagrams of other hosts over these interfaces are accelerated, by AF_XDP"),
    switch("EF_TCP_LISTEN_HANDOVER", false, "Hand a listener back to the kernel when it must be")
        .of(Group::Acceleration)
        .inert("each accelerated listener keeps its kernel listener open from the start"),
    switch("EF_TCP_CONNECT_HANDOVER", false, "Hand a socket to the kernel when its peer is there")
        .of(Group::Acceleration)
        .inert("connect always chooses the path; a kernel peer means a kernel socket"),
    text("EF_INTERFACE_WHITELIST", "", "Names of the interfaces that may be accelerated")
        .of(Group::Acceleration)
        .long(
            "Names separated by spaces or commas; bypass run --interface sets it. With none, only \
             connections of the same host are accelerated.",
        )
        .does("TCP connections with other hosts over these interfaces are accelerated, by AF_XDP"),
    networks_of("EF_ACCEPT_FROM", "Networks whose new connections are accelerated")
        .of(Group::Acceleration)
        .long(
            "Networks or addresses separated by spaces or commas. nftables and iptables do not see accelerated \
             connections; connections from elsewhere go to the kernel, which applies its rules to them. With none, \
             connections from everywhere are accelerated.",
        )
        .does("connections from other networks over the named interfaces go to the kernel"),
    text("EF_INTERFACE_BLACKLIST", "", "Names of the interfaces that may not be accelerated")
        .of(Group::Acceleration)
        .inert("only interfaces that EF_INTERFACE_WHITELIST names are used"),
    number("EF_BINDTODEVICE_HANDOVER", "0", 0..=1, "Hand a socket bound to a device to the kernel")
        .of(Group::Acceleration)
        .inert("always so: a socket bound to a device stays on the kernel"),
    number("EF_PIPE", "2", 0..=2, "Accelerate pipes")
        .of(Group::Acceleration)
        .inert("pipes stay on the kernel"),
    number("EF_UL_EPOLL", "1", 0..=3, "Which epoll implementation")
        .of(Group::Sockets)
        .long(
            "Onload has three with different trade-offs. Here there is one, which holds kernel and \
             accelerated descriptors together.",
        )
        .does("0: every socket stays on the kernel; 1, 2, 3: our one epoll"),
    switch("EF_EPOLL_MT_SAFE", false, "Promise that a set is never used by two threads at once")
        .of(Group::Sockets)
        .inert("the set's lock is uncontended when no other thread uses the set"),
    switch("EF_EPOLL_CTL_FAST", true, "Delay epoll_ctl of kernel descriptors")
        .of(Group::Sockets)
        .inert("epoll_ctl enters the kernel only for kernel descriptors, at once"),
    switch("EF_EPOLL_CTL_HANDOFF", true, "Let the lock's holder apply epoll_ctl")
        .of(Group::Sockets)
        .inert("epoll_ctl takes the set's own short lock"),
    switch("EF_FDS_MT_SAFE", true, "Promise about descriptors shared by threads")
        .of(Group::Sockets)
        .inert("descriptor look-ups are one atomic load; nothing can be left out"),
    switch("EF_FDTABLE_STRICT", false, "Lock the descriptor table on every change")
        .of(Group::Sockets)
        .inert("each entry changes atomically, without a lock to choose"),
    number("EF_FDTABLE_SIZE", "0", 0..=COUNT_MAX, "Bound of the descriptor table; 0 is the hard limit")
        .of(Group::Sockets)
        .inert("the table is as long as the hard limit on descriptors, and untouched parts cost nothing"),
    number("EF_SOCKET_CACHE_MAX", "1024", 0..=COUNT_MAX, "Closed sockets kept for reuse")
        .of(Group::Sockets)
        .long(
            "Opening and closing kernel descriptors costs more than half of what acceleration \
             gains with one connection per request. A kept number is listed in /proc/self/fd and \
             is skipped by open().",
        )
        .does("bound of the pool of prepared descriptors, at most a quarter of the soft limit"),
    number("EF_ACCEPTQ_MIN_BACKLOG", "1", 0..=COUNT_MAX, "Smallest backlog of listen()")
        .of(Group::Sockets)
        .does("a smaller backlog is raised to it; net.core.somaxconn stays the upper bound"),
    number("EF_ACCEPT_INHERIT_NONBLOCK", "0", 0..=1, "Accepted sockets inherit O_NONBLOCK")
        .of(Group::Sockets)
        .inert("accept does what Linux does: nothing is inherited"),
    number(
        "EF_MAX_ENDPOINTS",
        "8192",
        0..=COUNT_MAX,
        "Connections of one client process to one listener, or of an engine over packets",
    )
    .of(Group::Memory)
    .does(
        "connections beyond it use the kernel (reason: limit); to a listener of the same host it is at \
         least 1024, at most 16384, and rounded up to a power of two",
    ),
    number("EF_MAX_PACKETS", "32768", 0..=COUNT_MAX, "Packet buffers of a stack")
        .of(Group::Memory)
        .inert(NO_PACKETS),
    number("EF_MIN_FREE_PACKETS", "100", 0..=COUNT_MAX, "Packet buffers reserved at the start")
        .of(Group::Memory)
        .inert(NO_PACKETS),
    switch("EF_PREALLOC_PACKETS", false, "Take every packet buffer at the start")
        .of(Group::Memory)
        .inert(NO_PACKETS),
    number("EF_ENDPOINT_PACKET_RESERVE", "0", 0..=COUNT_MAX, "Packet buffers kept for each socket")
        .of(Group::Memory)
        .inert(NO_PACKETS),
    number("EF_KERNEL_PACKETS_BATCH_SIZE", "1", 0..=COUNT_MAX, "Packets handed to the kernel at once")
        .of(Group::Memory)
        .inert(NO_PACKETS),
    number("EF_USE_HUGE_PAGES", "1", 0..=2, "Huge pages: no, if possible, demanded")
        .of(Group::Memory)
        .inert("rings are memory that two processes share page by page; huge pages gave nothing"),
    number("EF_TCP_SEND_NONBLOCK_NO_PACKETS_MODE", "0", 0..=1, "Behaviour of send without a buffer")
        .of(Group::Memory)
        .inert(NO_PACKETS),
    number("EF_MAX_RX_PACKETS", "24576", 0..=COUNT_MAX, "Packet buffers for receiving")
        .of(Group::Memory)
        .inert(NO_PACKETS),
    number("EF_MAX_TX_PACKETS", "24576", 0..=COUNT_MAX, "Packet buffers for sending")
        .of(Group::Memory)
        .inert(NO_PACKETS),
];
