//! Settings of TCP with other hosts.

use crate::resolve::Resolved;

/// Each field is the option of its name; None: not set, the engine's own default applies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tcp {
    /// EF_TCP_INITIAL_CWND, bytes; 0 counts as not set.
    pub initial_window_bytes: Option<u64>,
    /// EF_TCP_TCONST_MSL, seconds.
    pub segment_life_s: Option<u64>,
    /// EF_TCP_FIN_TIMEOUT, seconds.
    pub fin_timeout_s: Option<u64>,
    /// EF_TCP_SYNRECV_MAX.
    pub half_open_max: Option<u64>,
    /// EF_TCP_SYNCOOKIES.
    pub syn_cookies: Option<bool>,
    /// EF_TCP_SYN_OPTS, bits.
    pub syn_options: Option<SynOptions>,
    /// EF_TCP_BACKLOG_MAX.
    pub half_open_of_listener_max: Option<u64>,
    /// EF_TCP_SNDBUF, bytes; 0 counts as not set.
    pub send_bytes: Option<u64>,
    /// EF_TCP_RCVBUF, bytes; 0 counts as not set.
    pub receive_bytes: Option<u64>,
    /// EF_TCP_SNDBUF_MODE is 0.
    pub send_is_fixed: bool,
    /// EF_TCP_RCVBUF_MODE was set to 0.
    pub receive_is_fixed: bool,
    /// EF_TCP_FASTSTART_INIT, bytes.
    pub quick_start_bytes: Option<u64>,
    /// EF_TCP_FASTSTART_IDLE, bytes.
    pub quick_idle_bytes: Option<u64>,
    /// EF_TCP_FASTSTART_LOSS, bytes.
    pub quick_loss_bytes: Option<u64>,
    /// EF_DELACK_THRESH, segments.
    pub delayed_ack_segments: Option<u64>,
    /// EF_TAIL_DROP_PROBE.
    pub loss_probe: Option<bool>,
    /// EF_KEEPALIVE_TIME, milliseconds.
    pub keepalive_idle_ms: Option<u64>,
    /// EF_RETRANSMIT_THRESHOLD.
    pub retries: Option<u8>,
    /// EF_RETRANSMIT_THRESHOLD_SYN.
    pub syn_retries: Option<u8>,
    /// EF_RFC_RTO_INITIAL, milliseconds.
    pub rto_initial_ms: Option<u64>,
    /// EF_RFC_RTO_MIN, milliseconds.
    pub rto_min_ms: Option<u64>,
    /// EF_RFC_RTO_MAX, milliseconds.
    pub rto_max_ms: Option<u64>,
}

/// The options of a SYN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SynOptions {
    /// RFC 7323.
    pub timestamps: bool,
    /// RFC 7323.
    pub window_scaling: bool,
    /// RFC 2018.
    pub sack: bool,
    /// RFC 3168.
    pub ecn: bool,
}

impl From<&Resolved> for Tcp {
    fn from(from: &Resolved) -> Self {
        let set = |name| from.is_set(name).then(|| from.number(name));
        let count = |name| set(name).and_then(|value| u64::try_from(value).ok());
        let small = |name| set(name).and_then(|value| u8::try_from(value).ok());
        Self {
            initial_window_bytes: count("EF_TCP_INITIAL_CWND").filter(|bytes| *bytes > 0),
            segment_life_s: count("EF_TCP_TCONST_MSL"),
            fin_timeout_s: count("EF_TCP_FIN_TIMEOUT"),
            half_open_max: count("EF_TCP_SYNRECV_MAX"),
            syn_cookies: set("EF_TCP_SYNCOOKIES").map(|value| value != 0),
            syn_options: set("EF_TCP_SYN_OPTS").map(|bits| SynOptions {
                timestamps: bits & 1 != 0,
                window_scaling: bits & 2 != 0,
                sack: bits & 4 != 0,
                ecn: bits & 8 != 0,
            }),
            half_open_of_listener_max: count("EF_TCP_BACKLOG_MAX"),
            send_bytes: count("EF_TCP_SNDBUF").filter(|bytes| *bytes > 0),
            receive_bytes: count("EF_TCP_RCVBUF").filter(|bytes| *bytes > 0),
            send_is_fixed: set("EF_TCP_SNDBUF_MODE") == Some(0),
            receive_is_fixed: set("EF_TCP_RCVBUF_MODE") == Some(0),
            quick_start_bytes: count("EF_TCP_FASTSTART_INIT"),
            quick_idle_bytes: count("EF_TCP_FASTSTART_IDLE"),
            quick_loss_bytes: count("EF_TCP_FASTSTART_LOSS"),
            delayed_ack_segments: count("EF_DELACK_THRESH"),
            loss_probe: set("EF_TAIL_DROP_PROBE").map(|value| value != 0),
            keepalive_idle_ms: count("EF_KEEPALIVE_TIME"),
            retries: small("EF_RETRANSMIT_THRESHOLD"),
            syn_retries: small("EF_RETRANSMIT_THRESHOLD_SYN"),
            rto_initial_ms: count("EF_RFC_RTO_INITIAL"),
            rto_min_ms: count("EF_RFC_RTO_MIN"),
            rto_max_ms: count("EF_RFC_RTO_MAX"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_set_options_have_a_value() {
        assert_eq!(Tcp::from(&Resolved::default()), Tcp::default());
        let pairs = [("EF_TCP_SYN_OPTS", "10"), ("EF_RFC_RTO_MIN", "200")];
        let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let tcp = Tcp::from(&Resolved::from_environment(pairs.into_iter()));
        let offered = tcp.syn_options.expect("set");
        assert!(offered.window_scaling && offered.ecn && !offered.timestamps && !offered.sack);
        // The default value, set explicitly: it counts as set.
        assert_eq!((tcp.rto_min_ms, tcp.rto_max_ms), (Some(200), None));
    }
}
