//! Facts about a connection, and where they stand in `struct tcp_info` (linux/tcp.h, tcp(7)).

use crate::conn::{State, Totals};
use crate::engine::{Engine, Handle};
use crate::error::Error;
use crate::loss::Phase;
use crate::recovery::DUPLICATE_THRESHOLD;

/// 32-bit words of `struct tcp_info` up to `tcpi_snd_wnd`, as [`Info::linux_words`] fills them.
pub const INFO_WORDS: usize = 58;
/// Where `tcpi_snd_mss` stands, in words.
pub const SEGMENT_WORD: usize = 4;
/// What `tcpi_state` says of a connection that is over.
pub const LINUX_CLOSED: u8 = 7;
/// Linux's word for a slow start threshold that is not known.
const NO_THRESHOLD: u32 = i32::MAX as u32;

/// Facts about a connection, as TCP_INFO has them.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// Its state.
    pub state: State,
    /// Where loss recovery stands.
    pub phase: Phase,
    /// Smoothed round-trip time; zero when not measured.
    pub rtt_us: u32,
    /// Its mean deviation.
    pub rttvar_us: u32,
    /// Least round-trip time seen; `u32::MAX` when not measured.
    pub min_rtt_us: u32,
    /// Retransmission timeout now.
    pub rto_us: u64,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Slow start threshold in segments; `u32::MAX` before the first loss.
    pub ssthresh: u32,
    /// Payload of a full segment.
    pub mss: u32,
    /// The peer's full segment, as far as seen.
    pub rcv_mss: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Of these, selectively acknowledged.
    pub sacked: u32,
    /// Of these, taken for lost.
    pub lost: u32,
    /// Of these, sent again.
    pub retrans: u32,
    /// The peer's window.
    pub snd_wnd: u32,
    /// Our window.
    pub rcv_wnd: u32,
    /// Largest packet of the path.
    pub path_mtu: u32,
    /// The segment size that we stated.
    pub advertised_mss: u32,
    /// How far the network reorders, in segments, and how often it was seen.
    pub reordering: (u32, u32),
    /// Bytes written and not yet sent.
    pub unsent: u32,
    /// Since data was sent, since data came, since an acknowledgment came.
    pub quiet_us: [u64; 3],
    /// Round-trip time as the receiver sees it, and what the application reads in one.
    pub receiver: (u32, u32),
    /// Time with bytes to deliver, of it limited by the peer's window, and by the send buffer.
    pub busy_us: (u64, u64, u64),
    /// Consecutive timeouts.
    pub timeouts: u8,
    /// Unanswered zero-window or keepalive probes.
    pub probes: u8,
    /// Shifts of the peer's and of our windows.
    pub scales: (u8, u8),
    /// Timestamps, SACK, ECN in use.
    pub has: (bool, bool, bool),
    /// Sums over its life.
    pub totals: Totals,
}

impl Engine {
    /// Facts about a connection.
    pub fn info(&mut self, handle: Handle) -> Result<Info, Error> {
        let index = self.conn_index(handle)?;
        let (conn, now_us) = (&self.conns[index], self.cx.now_us);
        let opened_us = conn.tuning.since_us;
        let since = |at_us: u64| now_us.saturating_sub(at_us);
        let received_us = if conn.received_us > 0 {
            conn.received_us
        } else {
            opened_us
        };
        let heard_us = received_us.max(conn.heard_us);
        Ok(Info {
            state: conn.state,
            phase: conn.recovery.phase,
            rtt_us: conn.rtt.srtt_us,
            rttvar_us: conn.rtt.rttvar_us,
            min_rtt_us: conn.rtt.min_us,
            rto_us: conn.rto_us(&self.cx.config),
            cwnd: conn.cwnd,
            ssthresh: conn.ssthresh,
            mss: conn.mss,
            rcv_mss: conn.rcv_mss,
            unacked: conn.packets_out,
            sacked: conn.recovery.sacked_out,
            lost: conn.recovery.lost_out,
            retrans: conn.recovery.retrans_out,
            snd_wnd: conn.snd_wnd,
            rcv_wnd: conn.receive_window(),
            path_mtu: conn.path_mtu,
            advertised_mss: conn.advertised_mss(),
            reordering: (
                conn.recovery.reordering.max(DUPLICATE_THRESHOLD),
                conn.recovery.reorderings,
            ),
            unsent: conn.unsent(),
            quiet_us: [conn.sent_us, received_us, heard_us].map(since),
            receiver: (conn.tuning.rtt_us, conn.tuning.space),
            busy_us: conn.chrono.times_us(now_us),
            timeouts: conn.recovery.timeouts,
            probes: conn.probes_out.max(conn.slow.keepalive_probes),
            scales: (conn.snd_scale, conn.rcv_scale),
            has: (conn.has_timestamps, conn.has_sack, conn.has_ecn),
            totals: conn.totals,
        })
    }
}

impl Info {
    /// The words of `struct tcp_info`. Values that the engine does not measure (pacing, rates, counts of segments) are 0.
    pub fn linux_words(&self) -> [u32; INFO_WORDS] {
        let mut words = [0; INFO_WORDS];
        let flags = [
            self.linux_state(),
            self.phase as u8,
            self.timeouts,
            self.probes,
        ];
        words[0] = u32::from_ne_bytes(flags);
        words[1] = u32::from_ne_bytes([self.timeouts, self.options(), self.scale_bits(), 0]);
        for (at, value) in self.numbers() {
            words[at / 4] = value;
        }
        for (at, value) in self.wide_numbers() {
            words[at / 4] = value as u32;
            words[at / 4 + 1] = (value >> 32) as u32;
        }
        words
    }

    /// Fields of 32 bits, each behind its place in bytes.
    fn numbers(&self) -> [(usize, u32); 26] {
        let milliseconds = |us: u64| u32::try_from(us / 1_000).unwrap_or(u32::MAX);
        let [sent, received, heard] = self.quiet_us.map(milliseconds);
        [
            (8, u32::try_from(self.rto_us).unwrap_or(u32::MAX)),
            (SEGMENT_WORD * 4, self.mss),
            (20, self.rcv_mss),
            (24, self.unacked),
            (28, self.sacked),
            (32, self.lost),
            (36, self.retrans),
            (44, sent),
            (52, received),
            (56, heard),
            (60, self.path_mtu),
            (64, self.rcv_wnd),
            (68, self.rtt_us),
            (72, self.rttvar_us),
            (76, self.ssthresh.min(NO_THRESHOLD)),
            (80, self.cwnd),
            (84, self.advertised_mss),
            (88, self.reordering.0),
            (92, self.receiver.0),
            (96, self.receiver.1),
            (100, self.totals.retransmitted),
            (144, self.unsent),
            (148, self.min_rtt_us),
            (192, self.totals.delivered),
            (220, self.reordering.1),
            (228, self.snd_wnd),
        ]
    }

    /// Fields of 64 bits.
    fn wide_numbers(&self) -> [(usize, u64); 5] {
        let (busy, window, buffer) = self.busy_us;
        [
            (120, self.totals.bytes_acked),
            (128, self.totals.bytes_received),
            (168, busy),
            (176, window),
            (184, buffer),
        ]
    }

    /// Numbers of include/net/tcp_states.h.
    fn linux_state(&self) -> u8 {
        match self.state {
            State::Established => 1,
            State::SynSent => 2,
            State::SynReceived => 3,
            State::FinWait1 => 4,
            State::FinWait2 => 5,
            State::CloseWait => 8,
            State::LastAck => 9,
            State::Closing => 11,
            // A descriptor whose connection only waits for old segments is closed, as in the kernel.
            State::Closed | State::TimeWait => LINUX_CLOSED,
        }
    }

    /// TCPI_OPT_TIMESTAMPS, TCPI_OPT_SACK, TCPI_OPT_WSCALE, TCPI_OPT_ECN.
    fn options(&self) -> u8 {
        let (timestamps, sack, ecn) = self.has;
        let has = [timestamps, sack, self.scales != (0, 0), ecn];
        let bits = has.iter().enumerate();
        bits.map(|(bit, has)| u8::from(*has) << bit).sum()
    }

    /// Two numbers of four bits, the lower bits first.
    fn scale_bits(&self) -> u8 {
        self.scales.0 & 15 | (self.scales.1 & 15) << 4
    }
}
