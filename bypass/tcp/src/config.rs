//! Settings of an engine. The defaults are Linux's.

use crate::wire::ethernet::Mac;

/// Congestion control of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Congestion {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 5681 and RFC 6582.
    NewReno,
}

/// When explicit congestion notification (RFC 3168) is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    /// Never.
    Off,
    /// When the peer asks for it.
    #[default]
    Accept,
    /// Asked for and accepted.
    Request,
}

/// Acknowledgments in a row that are not delayed. The defaults are Linux's TCP_MAX_QUICKACKS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuickAcks {
    /// At the begin of a connection, whose peer is in slow start.
    pub start: u8,
    /// After a pause, whose peer is in slow start again.
    pub idle: u8,
    /// After a segment out of order.
    pub loss: u8,
}

impl Default for QuickAcks {
    fn default() -> QuickAcks {
        QuickAcks {
            start: QUICK_ACKS,
            idle: QUICK_ACKS,
            loss: QUICK_ACKS,
        }
    }
}

/// See [`QuickAcks`].
pub const QUICK_ACKS: u8 = 16;

/// Settings of an engine. All sizes in bytes, all times in microseconds.
#[derive(Clone, Debug)]
pub struct Config {
    /// Link address of the interface.
    pub mac: Mac,
    /// Largest IP packet that the link carries.
    pub mtu: u32,
    /// The engine is the only host behind this link address: it answers ARP, neighbour
    /// solicitations and echo requests, and resets connections that it does not know. False where
    /// the kernel keeps the interface: such frames are passed on ([`crate::TxSink::pass`]).
    pub is_sole_host: bool,
    /// The engine resolves neighbours itself. False where the caller sets them from the kernel's
    /// table; [`crate::Engine::wanted_neighbours`] then says which are missing.
    pub resolves_neighbours: bool,
    /// How long a neighbour is believed to be where it was found, without progress of a connection that goes
    /// there (Linux's base_reachable_time); after that it is asked for again, and used meanwhile.
    pub neighbour_reachable_us: u64,
    /// Largest GSO segment that the device cuts into packets itself; zero when it cannot.
    pub segmentation_max: u32,
    /// Segments that a GSO segment may have however slow the connection is (tcp_min_tso_segs).
    pub train_segments: u32,
    /// The device completes TCP checksums.
    pub checksum_offload: bool,
    /// Secret for initial sequence numbers, cookies and hashing: random, from the caller.
    pub secret: [u8; 16],
    /// Connections at most.
    pub connections_max: u32,
    /// Half-open entries at most; beyond them SYN cookies are sent.
    pub half_open_max: u32,
    /// Half-open entries of one listener at most, however large its backlog is.
    pub half_open_of_listener_max: u32,
    /// Whether SYN cookies are sent when half-open entries are exhausted.
    pub syn_cookies: bool,
    /// TIME_WAIT entries at most; beyond them the oldest goes.
    pub time_wait_max: u32,
    /// Length of TIME_WAIT.
    pub time_wait_us: u64,
    /// Bytes of all buffers together.
    pub buffer_bytes_max: usize,
    /// Segments in flight, of all connections, beyond which each may have few only.
    pub segments_max: usize,
    /// First receive window.
    pub receive_bytes: u32,
    /// Largest receive window that autotuning reaches.
    pub receive_bytes_max: u32,
    /// First limit of unsent and unacknowledged bytes.
    pub send_bytes: u32,
    /// Largest limit that autotuning reaches.
    pub send_bytes_max: u32,
    /// Unsent bytes with which a send buffer counts as full, where the socket does not say
    /// (tcp_notsent_lowat); zero for no limit.
    pub unsent_low: u32,
    /// Ports for active opens, first and last.
    pub ports: (u16, u16),
    /// Congestion control of new connections.
    pub congestion: Congestion,
    /// Use of ECN.
    pub ecn: Ecn,
    /// Offer timestamps.
    pub timestamps: bool,
    /// Offer selective acknowledgments.
    pub sack: bool,
    /// Offer window scaling.
    pub window_scaling: bool,
    /// First congestion window, in segments (RFC 6928).
    pub initial_window: u32,
    /// Slow start again after an idle time (RFC 5681, 4.1).
    pub slow_start_after_idle: bool,
    /// Retransmissions of a SYN.
    pub syn_retries: u8,
    /// Further ones that come first, each after the first timeout (tcp_syn_linear_timeouts).
    pub syn_linear_timeouts: u8,
    /// Retransmissions of a SYN/ACK.
    pub syn_ack_retries: u8,
    /// Retransmissions of data.
    pub retries: u8,
    /// Retransmissions of data after the application has closed.
    pub orphan_retries: u8,
    /// Retransmission timeout before the round-trip time is known (RFC 6298, 2.1).
    pub rto_initial_us: u64,
    /// Least retransmission timeout (Linux's, not the second of RFC 6298).
    pub rto_min_us: u64,
    /// Largest retransmission timeout.
    pub rto_max_us: u64,
    /// Tail loss probes (RFC 8985, 7).
    pub loss_probe: bool,
    /// Acknowledgments that are not delayed.
    pub quick_acks: QuickAcks,
    /// Delay of an acknowledgment.
    pub delayed_ack_us: u64,
    /// Full segments that may wait for an acknowledgment; one more is acknowledged at once.
    pub delayed_ack_segments: u32,
    /// The application acts between two rounds rather than inside one: an acknowledgment that its answer
    /// may carry waits for the end of the next round ([`crate::Engine::end_batch`]). False: it leaves at
    /// once, as Linux's do.
    pub answers_follow: bool,
    /// With `answers_follow`: how long it may wait besides, while rounds follow each other. Before a pause:
    /// [`crate::Engine::expect_no_answers`].
    pub answer_wait_us: u64,
    /// How long a closed connection waits for the other side's FIN.
    pub fin_wait_us: u64,
    /// Idle time before the first keepalive probe.
    pub keepalive_idle_us: u64,
    /// Time between keepalive probes.
    pub keepalive_interval_us: u64,
    /// Unanswered keepalive probes before the connection is given up.
    pub keepalive_probes: u8,
    /// Time to live, or hop limit, of what has none of its own.
    pub hops: u8,
    /// Challenge acknowledgments a second, of all connections.
    pub challenge_acks_per_second: u32,
    /// Least time between two answers to segments outside a connection's window (tcp_invalid_ratelimit).
    pub invalid_pause_us: u64,
    /// Neighbours at most.
    pub neighbours_max: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            is_sole_host: true,
            resolves_neighbours: true,
            neighbour_reachable_us: 30_000_000,
            segmentation_max: 0,
            train_segments: 2,
            checksum_offload: false,
            secret: [0; 16],
            connections_max: 65_536,
            half_open_max: 4_096,
            half_open_of_listener_max: u32::MAX,
            syn_cookies: true,
            time_wait_max: 262_144,
            time_wait_us: 60_000_000,
            buffer_bytes_max: 512 << 20,
            segments_max: 1 << 19,
            receive_bytes: 65_535,
            receive_bytes_max: 3 << 20,
            send_bytes: 87_040,
            send_bytes_max: 4 << 20,
            unsent_low: 0,
            ports: (32_768, 60_999),
            congestion: Congestion::Cubic,
            ecn: Ecn::Accept,
            timestamps: true,
            sack: true,
            window_scaling: true,
            initial_window: 10,
            slow_start_after_idle: true,
            syn_retries: 6,
            syn_linear_timeouts: 0,
            syn_ack_retries: 5,
            retries: 15,
            orphan_retries: 8,
            rto_initial_us: 1_000_000,
            rto_min_us: 200_000,
            rto_max_us: 120_000_000,
            loss_probe: true,
            quick_acks: QuickAcks::default(),
            delayed_ack_us: 40_000,
            delayed_ack_segments: 1,
            answers_follow: false,
            answer_wait_us: 0,
            fin_wait_us: 60_000_000,
            keepalive_idle_us: 7_200_000_000,
            keepalive_interval_us: 75_000_000,
            keepalive_probes: 9,
            hops: 64,
            challenge_acks_per_second: 1_000,
            invalid_pause_us: 500_000,
            // As many of each family as Linux keeps (gc_thresh3).
            neighbours_max: 2_048,
        }
    }
}
