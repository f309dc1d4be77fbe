//! Options about TCP itself: of the engine that serves other hosts, as a byte stream in shared memory has
//! neither segments nor loss.

use crate::definition::{number, switch, Definition, Group};

const COUNT_MAX: i64 = 1 << 30;
const NO_LOSS: &str = "shared memory loses nothing and acknowledges nothing";
const BUFFERS: &str =
    "a direction holds up to 4 MiB as needed; SO_SNDBUF and SO_RCVBUF of the program are its limit";

pub(super) const OPTIONS: &[Definition] = &[
    number(
        "EF_TCP_INITIAL_CWND",
        "0",
        0..=COUNT_MAX,
        "First congestion window; 0 is the standard size",
    )
    .unit("bytes")
    .of(Group::Tcp)
    .unset("10 segments")
    .does("over packets, with other hosts: the first congestion window, in whole segments"),
    number(
        "EF_DYNAMIC_ACK_THRESH",
        "16",
        0..=65_535,
        "Pending acknowledgements before one is sent",
    )
    .of(Group::Tcp)
    .inert(NO_LOSS),
    switch("EF_TAIL_DROP_PROBE", true, "Probe for a lost last segment")
        .of(Group::Tcp)
        .unset("the host's tcp_early_retrans")
        .does("over packets: 0 sends no tail loss probes"),
    number(
        "EF_TCP_FASTSTART_INIT",
        "65536",
        0..=COUNT_MAX,
        "Bytes acknowledged fast at the start",
    )
    .unit("bytes")
    .of(Group::Tcp)
    .unset("16 segments")
    .does("over packets: received bytes whose acknowledgements are not delayed at the start of a connection, in whole segments"),
    number(
        "EF_TCP_FASTSTART_IDLE",
        "65536",
        0..=COUNT_MAX,
        "Bytes acknowledged fast after a pause",
    )
    .unit("bytes")
    .of(Group::Tcp)
    .unset("16 segments")
    .does("over packets: received bytes whose acknowledgements are not delayed after a pause, in whole segments"),
    number(
        "EF_TCP_FASTSTART_LOSS",
        "65536",
        0..=COUNT_MAX,
        "Bytes acknowledged fast after a loss",
    )
    .unit("bytes")
    .of(Group::Tcp)
    .unset("16 segments")
    .does("over packets: received bytes whose acknowledgements are not delayed after a segment out of order, in whole segments"),
    number(
        "EF_TCP_TCONST_MSL",
        "25",
        0..=600,
        "Longest lifetime of a segment, which determines TIME_WAIT",
    )
    .unit("s")
    .of(Group::Tcp)
    .unset("30 s")
    .does("over packets: half the length of TIME_WAIT"),
    number(
        "EF_TCP_FIN_TIMEOUT",
        "60",
        0..=86_400,
        "How long a half-closed orphan is kept",
    )
    .unit("s")
    .of(Group::Tcp)
    .unset("the host's tcp_fin_timeout")
    .does("over packets: how long a closed connection waits for the end of the other side"),
    number(
        "EF_TCP_SYNRECV_MAX",
        "1024",
        0..=COUNT_MAX,
        "Half-open connections of a stack",
    )
    .of(Group::Tcp)
    .unset("4096")
    .does("over packets: half-open connections of an engine"),
    number(
        "EF_TCP_BACKLOG_MAX",
        "256",
        0..=COUNT_MAX,
        "Half-open connections of a listener",
    )
    .of(Group::Tcp)
    .unset("the listener's backlog")
    .does("over packets: half-open connections of a listener"),
    switch(
        "EF_TCP_SYNCOOKIES",
        false,
        "Send SYN cookies when the table of half-open connections is full",
    )
    .of(Group::Tcp)
    .unset("the host's tcp_syncookies")
    .does("over packets: 0 drops SYNs when the table of half-open connections is full"),
    number(
        "EF_TCP_SYN_OPTS",
        "7",
        0..=255,
        "TCP options that a SYN offers, as bits",
    )
    .of(Group::Tcp)
    .unset("the host's tcp_timestamps, tcp_window_scaling, tcp_sack and tcp_ecn")
    .does("over packets: 1 timestamps, 2 window scaling, 4 selective acknowledgments, 8 ECN"),
    number(
        "EF_TCP_RCVBUF_MODE",
        "0",
        0..=1,
        "Receive buffer: fixed, or tuned to the connection",
    )
    .of(Group::Tcp)
    .unset("the host's tcp_moderate_rcvbuf")
    .does("over packets: 0 fixes the engine's receive buffer at EF_TCP_RCVBUF or 64 KiB"),
    switch(
        "EF_TCP_RCVBUF_STRICT",
        false,
        "Count small segments at their full cost",
    )
    .of(Group::Tcp)
    .inert(BUFFERS),
    number(
        "EF_TCP_SNDBUF_MODE",
        "1",
        0..=2,
        "Send buffer: fixed, split, or tuned",
    )
    .of(Group::Tcp)
    .does("over packets: 0 fixes the engine's send buffer at EF_TCP_SNDBUF or 85 KiB; 1 and 2 tune it"),
    number(
        "EF_TCP_SNDBUF",
        "0",
        0..=COUNT_MAX,
        "Send buffer that overrides the program's; 0 is none",
    )
    .unit("bytes")
    .of(Group::Tcp)
    .unset("tuned")
    .does("over packets: overrides the engine's send buffer; the program's own lies in front of it"),
    number(
        "EF_TCP_RCVBUF",
        "0",
        0..=COUNT_MAX,
        "Receive buffer that overrides the program's",
    )
    .unit("bytes")
    .of(Group::Tcp)
    .unset("tuned")
    .does("over packets: overrides the engine's receive buffer; up to 64 KiB more lie in front of the program"),
    number(
        "EF_DELACK_THRESH",
        "1",
        0..=65_535,
        "Segments received before an acknowledgement",
    )
    .of(Group::Tcp)
    .does("over packets: full segments that may wait for their acknowledgement"),
    number(
        "EF_KEEPALIVE_TIME",
        "7200000",
        0..=COUNT_MAX,
        "Idle time before the first keep-alive probe",
    )
    .unit("ms")
    .of(Group::Tcp)
    .unset("the host's tcp_keepalive_time")
    .does("over packets: of sockets with SO_KEEPALIVE that do not set TCP_KEEPIDLE"),
    number(
        "EF_RETRANSMIT_THRESHOLD",
        "15",
        0..=255,
        "Retransmissions before a connection is given up",
    )
    .of(Group::Tcp)
    .unset("the host's tcp_retries2")
    .does("over packets: retransmissions of data before a connection is given up"),
    number(
        "EF_RETRANSMIT_THRESHOLD_SYN",
        "4",
        0..=255,
        "Retransmissions of a SYN",
    )
    .of(Group::Tcp)
    .unset("the host's tcp_syn_retries")
    .does("over packets: retransmissions of a SYN"),
    number(
        "EF_NONAGLE_INFLIGHT_MAX",
        "50",
        0..=65_535,
        "Unacknowledged segments under TCP_NODELAY",
    )
    .of(Group::Tcp)
    .inert(NO_LOSS),
    switch(
        "EF_FORCE_TCP_NODELAY",
        false,
        "Send at once, whatever the program sets",
    )
    .of(Group::Tcp)
    .inert("every write is visible to the reader at once; over packets TCP_NODELAY is always on"),
    number(
        "EF_RFC_RTO_INITIAL",
        "1000",
        0..=COUNT_MAX,
        "First retransmission time-out",
    )
    .unit("ms")
    .of(Group::Tcp)
    .does("over packets: the retransmission time-out before a round trip was measured"),
    number(
        "EF_RFC_RTO_MIN",
        "200",
        0..=COUNT_MAX,
        "Shortest retransmission time-out",
    )
    .unit("ms")
    .of(Group::Tcp)
    .unset("the host's tcp_rto_min_us, else 200 ms")
    .does("over packets: the shortest retransmission time-out, beyond the round-trip time"),
    number(
        "EF_RFC_RTO_MAX",
        "120000",
        0..=COUNT_MAX,
        "Longest retransmission time-out",
    )
    .unit("ms")
    .of(Group::Tcp)
    .unset("the host's tcp_rto_max_ms, else 120000 ms")
    .does("over packets: the longest retransmission time-out"),
];
