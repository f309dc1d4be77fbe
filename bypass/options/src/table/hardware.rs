//! Options about sending and receiving on a network card, which shared memory does not touch.

use crate::definition::{number, switch, text, Definition, Group};

const COUNT_MAX: i64 = 1 << 30;
const NO_CARD: &str = "no card is programmed: frames go through AF_XDP, by rings of one size";

pub(super) const OPTIONS: &[Definition] = &[
    switch(
        "EF_HIGH_THROUGHPUT_MODE",
        false,
        "Batch at the price of some latency",
    )
    .of(Group::Hardware)
    .inert("a sleeping peer is woken at once; while it spins no wake-up is needed"),
    number(
        "EF_RXQ_SIZE",
        "-1",
        -1..=COUNT_MAX,
        "Length of the receive ring; -1 chooses",
    )
    .of(Group::Hardware)
    .inert(NO_CARD),
    number(
        "EF_TXQ_SIZE",
        "-1",
        -1..=COUNT_MAX,
        "Length of the send ring; -1 chooses",
    )
    .of(Group::Hardware)
    .inert(NO_CARD),
    switch(
        "EF_TX_PUSH",
        true,
        "Push the descriptor to the card together with the wake-up",
    )
    .of(Group::Hardware)
    .inert(NO_CARD),
    number("EF_PIO", "1", 0..=2, "Send small packets by programmed I/O")
        .of(Group::Hardware)
        .inert(NO_CARD),
    number(
        "EF_PIO_THRESHOLD",
        "1514",
        0..=65_535,
        "Largest packet sent by programmed I/O",
    )
    .unit("bytes")
    .of(Group::Hardware)
    .inert(NO_CARD),
    number(
        "EF_CTPIO",
        "1",
        0..=2,
        "Send while the packet is still being written",
    )
    .of(Group::Hardware)
    .inert(NO_CARD),
    text(
        "EF_CTPIO_MODE",
        "sf-np",
        "How such a send treats a late packet",
    )
    .of(Group::Hardware)
    .inert(NO_CARD),
    switch(
        "EF_CTPIO_SWITCH_BYPASS",
        false,
        "Let such a send go through the card's own switch",
    )
    .of(Group::Hardware)
    .inert(NO_CARD),
    number(
        "EF_CTPIO_MAX_FRAME_LEN",
        "0",
        0..=65_535,
        "Longest frame sent this way; 0 chooses",
    )
    .unit("bytes")
    .of(Group::Hardware)
    .inert(NO_CARD),
    number(
        "EF_TPH_MODE",
        "0",
        0..=2,
        "Hints to the memory system with each transfer",
    )
    .of(Group::Hardware)
    .inert(NO_CARD),
    number(
        "EF_EVS_PER_POLL",
        "64",
        0..=COUNT_MAX,
        "Events taken from the card at a time",
    )
    .of(Group::Hardware)
    .inert(NO_CARD),
    number(
        "EF_RX_TIMESTAMPING",
        "0",
        0..=3,
        "Arrival times from the card",
    )
    .of(Group::Hardware)
    .inert(NO_CARD),
    number(
        "EF_TX_TIMESTAMPING",
        "0",
        0..=3,
        "Departure times from the card",
    )
    .of(Group::Hardware)
    .inert(NO_CARD),
    number(
        "EF_IRQ_MODERATION",
        "0",
        0..=COUNT_MAX,
        "Shortest time between two interrupts",
    )
    .unit("µs")
    .of(Group::Hardware)
    .inert(NO_CARD),
    number(
        "EF_PACKET_BUFFER_MODE",
        "0",
        0..=3,
        "How packet buffers are given to the card",
    )
    .of(Group::Hardware)
    .inert(NO_CARD),
    number(
        "EF_FORCE_SEND_MULTICAST",
        "1",
        0..=1,
        "Accelerate multicast sends always",
    )
    .of(Group::Hardware)
    .inert("multicast stays on the kernel"),
    number(
        "EF_MCAST_SEND",
        "0",
        0..=3,
        "Deliver multicast to this host's own receivers",
    )
    .of(Group::Hardware)
    .inert("multicast stays on the kernel"),
    number("EF_MCAST_RECV", "1", 0..=1, "Accelerate multicast receives")
        .of(Group::Hardware)
        .inert("multicast stays on the kernel"),
    number(
        "EF_UDP_SNDBUF",
        "0",
        0..=COUNT_MAX,
        "Send buffer of UDP sockets; 0 keeps the size that the program sets",
    )
    .unit("bytes")
    .of(Group::Hardware)
    .inert("a datagram is sent at once and waits nowhere"),
    number(
        "EF_UDP_RCVBUF",
        "0",
        0..=COUNT_MAX,
        "Receive buffer of UDP sockets; 0 keeps the size that the program sets",
    )
    .unit("bytes")
    .of(Group::Hardware)
    .inert("SO_RCVBUF decides, as for the kernel's socket"),
    switch(
        "EF_UDP_CONNECT_HANDOVER",
        true,
        "Hand a UDP socket to the kernel when its peer is there",
    )
    .of(Group::Hardware)
    .inert(
        "the kernel's socket is always there, and sends what goes by no interface that is named",
    ),
];
