//! Options of a socket, as `setsockopt` knows them.

use crate::config::Congestion;

/// One option with its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketOption {
    /// TCP_NODELAY.
    NoDelay(bool),
    /// TCP_CORK.
    Cork(bool),
    /// TCP_QUICKACK.
    QuickAck(bool),
    /// SO_KEEPALIVE.
    KeepAlive(bool),
    /// TCP_KEEPIDLE.
    KeepIdle {
        /// Seconds.
        seconds: u32,
    },
    /// TCP_KEEPINTVL.
    KeepInterval {
        /// Seconds.
        seconds: u32,
    },
    /// TCP_KEEPCNT.
    KeepCount(u8),
    /// TCP_USER_TIMEOUT; zero for none.
    UserTimeout {
        /// Milliseconds.
        milliseconds: u32,
    },
    /// TCP_MAXSEG; zero for no limit of ours.
    SegmentMax(u32),
    /// SO_SNDBUF: a fixed limit, no autotuning.
    SendBuffer {
        /// Bytes.
        bytes: u32,
    },
    /// SO_RCVBUF: a fixed limit, no autotuning.
    ReceiveBuffer {
        /// Bytes.
        bytes: u32,
    },
    /// SO_LINGER: `Some(0)` makes close a reset; waiting is the caller's.
    Linger {
        /// Seconds.
        seconds: Option<u32>,
    },
    /// SO_OOBINLINE.
    UrgentInline(bool),
    /// TCP_CONGESTION.
    CongestionControl(Congestion),
    /// TCP_LINGER2: how long FIN_WAIT_2 lasts after close.
    FinWait {
        /// Seconds.
        seconds: u32,
    },
    /// TCP_SYNCNT.
    SynRetries(u8),
    /// TCP_DEFER_ACCEPT of a listener: a connection without data is not accepted.
    DeferAccept(bool),
    /// TCP_NOTSENT_LOWAT: writable only with fewer unsent bytes; zero for no limit.
    UnsentLow {
        /// Bytes.
        bytes: u32,
    },
    /// IP_TOS or IPV6_TCLASS; the ECN bits are the engine's.
    TrafficClass(u8),
}

/// The name of an option, for [`crate::Engine::getopt`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the same names as in SocketOption
pub enum OptionName {
    NoDelay,
    Cork,
    QuickAck,
    KeepAlive,
    KeepIdle,
    KeepInterval,
    KeepCount,
    UserTimeout,
    SegmentMax,
    SendBuffer,
    ReceiveBuffer,
    Linger,
    UrgentInline,
    CongestionControl,
    FinWait,
    SynRetries,
    DeferAccept,
    UnsentLow,
    TrafficClass,
}

/// The options of one socket.
#[derive(Clone, Copy, Default)]
pub struct Settings {
    /// TCP_NODELAY.
    pub no_delay: bool,
    /// TCP_CORK.
    pub cork: bool,
    /// SO_KEEPALIVE.
    pub keepalive: bool,
    /// SO_OOBINLINE.
    pub urgent_inline: bool,
    /// TCP_DEFER_ACCEPT.
    pub defer_accept: bool,
    /// SO_SNDBUF was set.
    pub has_fixed_send: bool,
    /// SO_RCVBUF was set.
    pub has_fixed_receive: bool,
    /// TCP_KEEPCNT; zero for the engine's.
    pub keepalive_probes: u8,
    /// TCP_SYNCNT; zero for the engine's.
    pub syn_retries: u8,
    /// IP_TOS.
    pub traffic_class: u8,
    /// TCP_CONGESTION; none for the engine's.
    pub congestion: Option<Congestion>,
    /// SO_LINGER.
    pub linger_s: Option<u32>,
    /// TCP_KEEPIDLE; zero for the engine's.
    pub keepalive_idle_us: u64,
    /// TCP_KEEPINTVL; zero for the engine's.
    pub keepalive_interval_us: u64,
    /// TCP_USER_TIMEOUT; zero for none.
    pub user_timeout_us: u64,
    /// TCP_LINGER2; zero for the engine's.
    pub fin_wait_us: u64,
    /// TCP_MAXSEG.
    pub segment_max: u32,
    /// SO_SNDBUF, when set.
    pub send_bytes: u32,
    /// SO_RCVBUF, when set.
    pub receive_bytes: u32,
    /// TCP_NOTSENT_LOWAT.
    pub unsent_low: u32,
}
