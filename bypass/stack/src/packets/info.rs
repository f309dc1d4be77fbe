//! Facts about a connection as `struct tcp_info` has them (linux/tcp.h, tcp(7)).

use bypass_shard::tcp::{Info, State};
use bypass_shm::layout::INFO_WORDS;

/// Numbers of include/net/tcp_states.h.
const CLOSE: u8 = 7;

/// TCPI_OPT_TIMESTAMPS, TCPI_OPT_SACK, TCPI_OPT_WSCALE, TCPI_OPT_ECN.
const OPTIONS: [u8; 4] = [1, 2, 4, 8];

/// Words by what lies there, in bytes from the begin.
const SEGMENT_AT: usize = 16;

/// The size of segments in what [`words`] has made, for TCP_MAXSEG.
pub fn segment_bytes(words: &[u32; INFO_WORDS]) -> u32 {
    words[SEGMENT_AT / 4]
}

/// Of a connection that is over.
pub fn of_nothing() -> [u32; INFO_WORDS] {
    let mut words = [0; INFO_WORDS];
    words[0] = u32::from_ne_bytes([CLOSE, 0, 0, 0]);
    words
}

/// What an engine knows. What it does not measure (pacing, rates, the times of the last segments), and what
/// only says how Linux works inside, is 0.
pub fn words(info: &Info) -> [u32; INFO_WORDS] {
    let mut words = [0; INFO_WORDS];
    let rto_us = u32::try_from(info.rto_us).unwrap_or(u32::MAX);
    let no_threshold = i32::MAX as u32;
    let bytes = [
        state(info.state),
        info.phase as u8,
        info.timeouts,
        info.probes,
    ];
    words[0] = u32::from_ne_bytes(bytes);
    words[1] = u32::from_ne_bytes([info.timeouts, options(info), scales(info), 0]);
    for (at, value) in [
        (8, rto_us),
        (SEGMENT_AT, info.mss),
        (20, info.rcv_mss),
        (24, info.unacked),
        (28, info.sacked),
        (32, info.lost),
        (36, info.retrans),
        (60, info.path_mtu),
        (64, info.rcv_wnd),
        (68, info.rtt_us),
        (72, info.rttvar_us),
        (76, info.ssthresh.min(no_threshold)),
        (80, info.cwnd),
        (100, info.totals.retransmitted),
        (120, info.totals.bytes_acked as u32),
        (124, (info.totals.bytes_acked >> 32) as u32),
        (128, info.totals.bytes_received as u32),
        (132, (info.totals.bytes_received >> 32) as u32),
        (148, info.min_rtt_us),
        (192, info.totals.delivered),
        (228, info.snd_wnd),
    ] {
        words[at / 4] = value;
    }
    words
}

fn state(state: State) -> u8 {
    match state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
        // A descriptor's connection that only waits for old segments is closed, as in the kernel.
        State::Closed | State::TimeWait => CLOSE,
    }
}

fn options(info: &Info) -> u8 {
    let (timestamps, sack, ecn) = info.has;
    let scaling = info.scales != (0, 0);
    let has = [timestamps, sack, scaling, ecn];
    let bits = OPTIONS.iter().zip(has).filter(|(_, has)| *has);
    bits.map(|(bit, _)| *bit).sum()
}

/// Two numbers of four bits, the lower bits first.
fn scales(info: &Info) -> u8 {
    let (send, receive) = info.scales;
    send & 15 | (receive & 15) << 4
}
