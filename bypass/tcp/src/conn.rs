//! A connection: its state, and what every part of the engine needs to work on it.
//!
//! The fields stand in the order of their use: the first cache lines are all that a segment in
//! order, its acknowledgment and its answer touch.

use crate::buffer::Ring;
use crate::chrono::Chrono;
use crate::config::Config;
use crate::congestion::Control;
pub use crate::context::{Context, Full};
use crate::error::Error;
use crate::loss::Recovery;
use crate::option::Settings;
use crate::reassembly::Reassembly;
use crate::route::Hop;
use crate::rtt::Rtt;
use crate::sent::List;
use crate::wire::tcp::Flow;
use alloc::collections::VecDeque;

/// Something to read, or the end of the stream (as EPOLLIN).
pub const READABLE: u32 = 0x001;
/// An urgent byte (as EPOLLPRI).
pub const URGENT: u32 = 0x002;
/// Room to write (as EPOLLOUT).
pub const WRITABLE: u32 = 0x004;
/// An error to be fetched (as EPOLLERR).
pub const ERROR: u32 = 0x008;
/// Both directions are over (as EPOLLHUP).
pub const HANGUP: u32 = 0x010;
/// The peer has finished writing (as EPOLLRDHUP).
pub const PEER_CLOSED: u32 = 0x2000;

/// Retransmission timeout of a connection that was opened without a measurement of the round trip.
const RTO_UNMEASURED_US: u64 = 3_000_000;

/// The state of a connection (RFC 9293, 3.3.2). LISTEN and half-open connections are elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum State {
    /// No connection, or no longer.
    #[default]
    Closed,
    /// SYN sent by this side.
    SynSent,
    /// SYN sent by both sides at once.
    SynReceived,
    /// Open in both directions.
    Established,
    /// Our FIN sent, not acknowledged.
    FinWait1,
    /// Our FIN acknowledged.
    FinWait2,
    /// The peer's FIN received.
    CloseWait,
    /// Both FINs sent, ours not acknowledged.
    Closing,
    /// The peer's FIN received, then ours sent.
    LastAck,
    /// Over, and about to become a compact entry.
    TimeWait,
}

impl State {
    /// Whether our end is on its way.
    pub fn is_ending(self) -> bool {
        matches!(self, State::FinWait1 | State::Closing | State::LastAck)
    }
}

/// The purpose of the retransmission timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RetransmitTimer {
    /// Nothing.
    #[default]
    Off,
    /// Retransmission timeout (RFC 6298).
    Timeout,
    /// Tail loss probe (RFC 8985, 7).
    LossProbe,
    /// A segment that may only be reordered (RFC 8985, 6.2, step 5).
    Reordering,
    /// Zero-window probe, and the sender's override of silly windows (RFC 9293, 3.8.6).
    Persist,
}

/// Keepalive, lingering and user timeout: what only idle or dying connections look at.
#[derive(Clone, Copy, Default)]
pub struct Slow {
    /// The next keepalive probe; zero when there is none.
    pub keepalive_at_us: u64,
    /// When FIN_WAIT_2 of a closed connection ends; zero when it is not limited.
    pub linger_at_us: u64,
    /// Unanswered keepalive probes.
    pub keepalive_probes: u8,
}

/// What is remembered to grow the windows with use.
#[derive(Clone, Copy, Default)]
pub struct Tuning {
    /// Bytes handed to the application since `since_us`.
    pub copied: u32,
    /// The most handed over in a round trip so far.
    pub space: u32,
    /// Begin of the round trip being measured.
    pub since_us: u64,
    /// Round-trip time as the receiver sees it; zero when not known.
    pub rtt_us: u32,
    /// Where the window measured for `rtt_us` ends, and when it began.
    pub rtt_seq: u32,
    /// See `rtt_seq`.
    pub rtt_since_us: u64,
}

/// A connection.
#[repr(C)]
#[derive(Default)]
pub struct Conn {
    /// Addresses and ports.
    pub flow: Flow,
    /// Next sequence number expected.
    pub rcv_nxt: u32,
    /// `rcv_nxt` at the last acknowledgment sent.
    pub rcv_acked: u32,
    /// Right edge of the window last advertised; it never moves back.
    pub rcv_edge: u32,
    /// First sequence number not acknowledged.
    pub snd_una: u32,
    /// Next sequence number to be sent.
    pub snd_nxt: u32,
    /// The peer's window behind `snd_una`.
    pub snd_wnd: u32,
    /// Sequence number of the segment that last set `snd_wnd`.
    pub snd_wl1: u32,
    /// Timestamp to be echoed.
    pub ts_recent: u32,
    /// Added to the clock for our timestamps.
    pub ts_offset: u32,
    /// Sequence number of the first byte in `tx`.
    pub tx_seq: u32,
    /// See [`State`].
    pub state: State,
    /// Timestamps are in use.
    pub has_timestamps: bool,
    /// Selective acknowledgments are in use.
    pub has_sack: bool,
    /// ECN is in use.
    pub has_ecn: bool,
    /// Shift of the peer's windows.
    pub snd_scale: u8,
    /// Shift of our windows.
    pub rcv_scale: u8,
    /// In the list of connections with something to send.
    pub in_output: bool,
    /// In the list of connections with events.
    pub in_ready: bool,
    /// An acknowledgment is owed, though not at once.
    pub ack_pending: bool,
    /// An acknowledgment is owed at the end of the batch.
    pub ack_due: bool,
    /// The same, unless an answer may carry it: see `Config::answers_follow`.
    pub ack_soon: bool,
    /// In the list of connections whose acknowledgments wait for an answer.
    pub ack_waits: bool,
    /// That one has waited for an answer.
    pub ack_has_waited: bool,
    /// The peer has sent more than the window took, and does not know of it: see `Conn::flush_ack`.
    pub is_overrun: bool,
    /// The device had no room for something when it was last offered.
    pub is_refused: bool,
    /// Acknowledgments that are not delayed, at the start of a connection.
    pub quick_acks: u8,
    /// Requests and answers alternate: acknowledgments ride on answers.
    pub is_interactive: bool,
    /// The application has closed: no handle refers to it any more.
    pub is_orphan: bool,
    /// The application has closed, but bytes of it are yet to be handed over: see `Engine::abandon`.
    pub is_abandoned: bool,
    /// FIN is to be sent behind the last byte, or was.
    pub fin_queued: bool,
    /// FIN was sent at least once.
    pub fin_sent: bool,
    /// The application reads no more.
    pub is_shut_reading: bool,
    /// Bytes in order, then bytes out of order behind holes.
    pub rx: Ring,
    /// Bytes from `tx_seq` on: unacknowledged, then unsent.
    pub tx: Ring,
    /// Segments in flight.
    pub sent: List,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Slow start threshold in segments.
    pub ssthresh: u32,
    /// Segments in `sent`.
    pub packets_out: u32,
    /// Payload of a full segment, timestamps taken off.
    pub mss: u32,
    /// Estimate of the peer's full segment, for delayed acknowledgments.
    pub rcv_mss: u32,
    /// Bytes that the receive buffer may hold.
    pub rcv_limit: u32,
    /// Bytes that the send buffer may hold.
    pub snd_limit: u32,
    /// What `retransmit_at_us` is for.
    pub retransmit: RetransmitTimer,
    /// Consecutive timeouts.
    pub backoff: u8,
    /// Readiness of which the application was not notified yet.
    pub events: u32,
    /// Its number in the engine.
    pub index: u32,
    /// Counts the uses of its place.
    pub generation: u32,
    /// The neighbour that packets go to.
    pub hop: Hop,
    /// See [`RetransmitTimer`].
    pub retransmit_at_us: u64,
    /// When a delayed acknowledgment is sent; zero when none waits.
    pub delayed_ack_at_us: u64,
    /// When data last came in.
    pub received_us: u64,
    /// When data was last sent.
    pub sent_us: u64,
    /// Round-trip time.
    pub rtt: Rtt,
    /// Congestion control.
    pub control: Control,

    /// Loss recovery.
    pub recovery: Recovery,
    /// Bytes behind holes.
    pub reassembly: Reassembly,
    /// Sequence number of the peer's FIN, received or ahead of a hole.
    pub fin_seq: Option<u32>,
    /// Initial sequence number of the peer.
    pub irs: u32,
    /// Our initial sequence number.
    pub iss: u32,
    /// Behind the last byte that the application wants pushed.
    pub push_seq: u32,
    /// Behind the last small segment sent, for Nagle's algorithm as Minshall changed it.
    pub small_seq: u32,
    /// Largest window that the peer ever advertised.
    pub snd_wnd_max: u32,
    /// Maximum segment size that the peer stated.
    pub peer_mss: u32,
    /// Bytes of IP packets that the path carries.
    pub path_mtu: u32,
    /// What is asked of the peer: see [`crate::route::Routes::stated_mss`].
    pub route_mss: u32,
    /// Behind the last GSO segment, and what has followed it by the same queue.
    pub gso_end: u32,
    /// When a segment last left that was none.
    pub single_us: u64,
    /// Flow label of its packets over IPv6.
    pub flow_label: u32,
    /// Time to live, or hop limit, of its packets where the socket does not say.
    pub path_hops: u8,
    /// When `ts_recent` was taken, in seconds.
    pub ts_recent_s: u32,
    /// Where urgent data from the peer ends.
    pub urgent: Option<Urgent>,
    /// Behind the urgent byte that we sent; counts while it is after `snd_una`.
    pub snd_up: Option<u32>,
    /// Time of the first of consecutive timeouts or unanswered probes.
    pub trouble_since_us: u64,
    /// Time of the last acknowledgment for a segment out of the window.
    pub challenged_us: u64,
    /// Unanswered zero-window probes.
    pub probes_out: u8,
    /// The window was the limit when segments were last sent.
    pub is_window_limited: bool,
    /// ECN: echo congestion until the peer has reduced.
    pub ece_wanted: bool,
    /// ECN: report to the peer that we have reduced.
    pub cwr_wanted: bool,
    /// The application found no room and waits for it.
    pub wants_room: bool,
    /// It is among the connections that wait for memory.
    pub is_starved: bool,
    /// The SYN or SYN/ACK is to be sent.
    pub syn_due: bool,
    /// It was sent again after a timeout.
    pub syn_resent: bool,
    /// A segment is to be sent though it is small: override of silly windows, end of a cork.
    pub push_small: bool,
    /// A zero-window or keepalive probe is to be sent.
    pub probe_due: bool,
    /// The last loss probe timer fired and nothing was sent yet.
    pub loss_probe_due: bool,
    /// The last write said that more follows (MSG_MORE).
    pub more_follows: bool,
    /// A reset is to be sent though the connection is over.
    pub reset_due: bool,
    /// When a segment last came in that brought no data.
    pub heard_us: u64,
    /// When the connection was opened.
    pub opened_us: u64,
    /// Its place is taken.
    pub in_use: bool,
    /// Segments and timers lead to it.
    pub is_attached: bool,
    /// Of a listener: not yet accepted.
    pub is_unaccepted: bool,
    /// Options of the socket.
    pub settings: Settings,
    /// The error that ended the connection, until it is fetched.
    pub error: Option<Error>,
    /// An error from ICMP that did not end the connection, reported when it times out.
    pub soft_error: Option<Error>,
    /// See [`Slow`].
    pub slow: Slow,
    /// See [`Tuning`].
    pub tuning: Tuning,
    /// The listener it came from.
    pub listener: u32,
    /// Bytes of the last segment that was smaller than `rcv_mss` and may be full.
    pub rcv_last: u32,
    /// Unsent bytes with which the send buffer counts as full.
    pub unsent_low: u32,
    /// Where the last unit of the send buffer begins.
    pub unit_from: u32,
    /// Where units begin behind what left at once when the application last wrote.
    pub units_from: u32,
    /// Marks within long writes that were not sent yet: see [`Conn::is_pushed`].
    pub pushes: VecDeque<u32>,
    /// Ends of records that were not sent yet.
    pub records: VecDeque<u32>,
    /// Counts for `info`.
    pub totals: Totals,
    /// Times for `info`.
    pub chrono: Chrono,
}

/// Sums over the life of a connection.
#[derive(Clone, Copy, Default, Debug)]
pub struct Totals {
    /// Segments sent again.
    pub retransmitted: u32,
    /// Segments delivered to the peer.
    pub delivered: u32,
    /// Bytes acknowledged by the peer.
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
}

/// Urgent data from the peer (RFC 6093: one byte, the last of it, as Linux has it).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Urgent {
    /// Sequence number of the urgent byte.
    pub seq: u32,
    /// The byte, once it came; `None` again when it was read.
    pub byte: Option<u8>,
    /// Whether it was read.
    pub is_read: bool,
}

impl Conn {
    /// Puts the connection on the list of those with something to send.
    #[inline]
    pub fn queue_output(&mut self, cx: &mut Context) {
        if !self.in_output {
            self.in_output = true;
            cx.output.push(self.index);
        }
    }

    /// Notifies the application.
    #[inline]
    pub fn notify(&mut self, cx: &mut Context, events: u32) {
        self.events |= events;
        if !self.in_ready && !self.is_unaccepted {
            self.in_ready = true;
            cx.ready.push(self.index);
        }
    }

    /// Reads a word of each cache line that a segment in order, its acknowledgment and its answer touch.
    #[inline]
    pub fn touch(&self) -> u32 {
        let first = self.rcv_nxt ^ self.tx_seq ^ self.cwnd ^ self.index;
        let times = self.received_us as u32 ^ self.rtt.srtt_us ^ self.control.touch();
        let recovery = self.recovery.sacked_out ^ self.recovery.rack_end;
        let rest = self.irs ^ self.snd_wnd_max ^ u32::from(self.probes_out);
        first ^ times ^ recovery ^ rest ^ self.tuning.copied ^ self.totals.delivered
    }

    /// Whether segments may be exchanged: SYNs are through, no end by error.
    #[inline]
    pub fn is_synchronized(&self) -> bool {
        !matches!(self.state, State::Closed | State::SynSent | State::TimeWait)
    }

    /// Whether a SYN of ours is not yet acknowledged.
    pub fn is_opening(&self) -> bool {
        matches!(self.state, State::SynSent | State::SynReceived)
    }

    /// The window that the peer may use now.
    #[inline]
    pub fn receive_window(&self) -> u32 {
        crate::seq::distance(self.rcv_nxt, self.rcv_edge)
    }

    /// Our timestamp now, in milliseconds (RFC 7323, 5.4).
    #[inline]
    pub fn timestamp(&self, now_us: u64) -> u32 {
        ((now_us / 1_000) as u32).wrapping_add(self.ts_offset)
    }

    /// Bytes written by the application and not yet sent.
    #[inline]
    pub fn unsent(&self) -> u32 {
        if self.fin_sent {
            return 0;
        }
        let end = self.tx_seq.wrapping_add(self.tx.len() as u32);
        crate::seq::distance(self.snd_nxt, end)
    }

    /// The current timeout with backoff.
    pub fn rto_us(&self, config: &Config) -> u64 {
        let rto = match self.rtt.srtt_us {
            0 if self.is_opening() => config.rto_initial_us,
            // No round trip was measured: SYN or SYN/ACK seemed lost (RFC 6298, 5.7).
            0 => config.rto_initial_us.max(RTO_UNMEASURED_US),
            _ => self.rtt.rto_us(config.rto_min_us, config.rto_max_us),
        };
        (rto << self.backoff.min(20)).min(config.rto_max_us)
    }

    /// Whether so much is received and not acknowledged that the acknowledgment must not wait (RFC 1122,
    /// 4.2.3.2).
    #[inline]
    pub fn is_ack_overdue(&self, config: &Config) -> bool {
        let most = self.rcv_mss.saturating_mul(config.delayed_ack_segments);
        self.rcv_nxt.wrapping_sub(self.rcv_acked) > most
    }

    /// Arms the retransmission timer.
    #[inline]
    pub fn arm(&mut self, cx: &mut Context, timer: RetransmitTimer, at_us: u64) {
        self.retransmit = timer;
        self.retransmit_at_us = at_us;
        cx.wheel.arm(self.index, at_us);
    }

    /// Takes a new maximum of the path in.
    pub fn set_path_mtu(&mut self, mtu: u32) {
        self.path_mtu = mtu;
        let headers = crate::wire::ip::header_len(self.flow.remote) + crate::wire::tcp::HEADER;
        let mut mss = self.peer_mss.min(mtu.saturating_sub(headers as u32));
        if self.settings.segment_max > 0 {
            mss = mss.min(self.settings.segment_max);
        }
        let options = if self.has_timestamps {
            crate::wire::tcp::TIMESTAMPS_LEN as u32
        } else {
            0
        };
        self.mss = mss.saturating_sub(options).max(48);
    }

    /// Ends the connection with an error for the application.
    pub fn fail(&mut self, cx: &mut Context, error: Error) {
        self.error = Some(error);
        self.state = State::Closed;
        self.drop_output(cx);
        self.notify(cx, READABLE | WRITABLE | ERROR | HANGUP | PEER_CLOSED);
    }

    /// Gives back everything that was to be sent.
    pub fn drop_output(&mut self, cx: &mut Context) {
        cx.nodes.clear(&mut self.sent);
        cx.pool.release(&mut self.tx);
        self.packets_out = 0;
        self.records.clear();
        self.pushes = VecDeque::new();
        self.recovery.forget_segments();
        self.retransmit = RetransmitTimer::Off;
        self.delayed_ack_at_us = 0;
        self.slow = Slow::default();
    }

    /// The readiness that the application would find now.
    pub fn readiness(&self) -> u32 {
        let mut ready = 0;
        let at_end = self.is_at_end();
        if self.readable_at_once().1 > 0 || at_end || self.is_shut_reading {
            ready |= READABLE;
        }
        if at_end || self.is_shut_reading {
            ready |= PEER_CLOSED;
        }
        if self
            .urgent
            .is_some_and(|urgent| urgent.byte.is_some() && !urgent.is_read)
        {
            ready |= URGENT;
        }
        let writing_over = self.fin_queued || self.state == State::Closed;
        if writing_over && !matches!(self.state, State::SynSent) || self.has_room() {
            ready |= WRITABLE;
        }
        if self.error.is_some() {
            ready |= ERROR;
        }
        if self.state == State::Closed || at_end && writing_over {
            ready |= HANGUP;
        }
        ready
    }

    /// Whether nothing will come after what is in the buffer.
    pub fn is_at_end(&self) -> bool {
        self.state == State::Closed
            || self
                .fin_seq
                .is_some_and(|fin| self.rcv_nxt == fin.wrapping_add(1))
    }
}
