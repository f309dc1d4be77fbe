//! Segment arrival (RFC 9293, 3.10.7): header prediction first, then the checks in their order.

use crate::conn::{Conn, Context, RetransmitTimer, State, HANGUP, READABLE, WRITABLE};
use crate::error::Error;
use crate::seq::{after, before};
use crate::wire::ip;
use crate::wire::tcp::{Segment, ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};

/// Time after which a timestamp is too old to compare with (RFC 7323, 5.5).
const TIMESTAMP_LIFE_S: u32 = 24 * 24 * 3_600;

/// The engine's immediate answer to a segment; everything else waits for the end of the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Nothing.
    None,
    /// Acknowledge what is in order now.
    Ack,
    /// Reset, as a segment without a connection is answered.
    Reset,
}

/// Whether a segment out of the window may be answered, where the last one was at `answered_us` (zero: never)
/// and one may be every `pause_us`.
pub fn may_answer_invalid(answered_us: &mut u64, now_us: u64, pause_us: u64) -> bool {
    let may = *answered_us == 0 || now_us - *answered_us >= pause_us;
    if may {
        *answered_us = now_us.max(1);
    }
    may
}

impl Conn {
    /// Takes a segment for this connection.
    #[inline]
    pub fn on_segment(&mut self, cx: &mut Context, seg: &Segment) -> Reply {
        if self.is_predicted(seg) {
            return self.on_predicted(cx, seg);
        }
        self.on_any(cx, seg)
    }

    /// The next segment in order, or a pure acknowledgment, with nothing special about either.
    #[inline]
    fn is_predicted(&self, seg: &Segment) -> bool {
        seg.flags & !PSH == ACK
            && seg.seq == self.rcv_nxt
            && self.state == State::Established
            && self.timestamp_is_good(seg)
            && seg.options.sack.is_empty()
            && self.reassembly.is_empty()
            && seg.ack.wrapping_sub(self.snd_una) <= self.snd_nxt.wrapping_sub(self.snd_una)
            && seg.payload.len() as u32 <= self.receive_window()
            && self.urgent.is_none()
            && !self.is_orphan
            && seg.ecn != ip::CE
    }

    #[inline]
    fn timestamp_is_good(&self, seg: &Segment) -> bool {
        match seg.options.timestamps {
            Some((value, _)) => self.has_timestamps && !before(value, self.ts_recent),
            None => !self.has_timestamps,
        }
    }

    #[inline]
    fn on_predicted(&mut self, cx: &mut Context, seg: &Segment) -> Reply {
        cx.stats.hp_hits += 1;
        self.heard_us = cx.now_us;
        self.keep_timestamp(cx, seg);
        self.acknowledge(cx, seg);
        if !seg.payload.is_empty() {
            return self.receive(cx, seg);
        }
        Reply::None
    }

    fn on_any(&mut self, cx: &mut Context, seg: &Segment) -> Reply {
        match self.state {
            State::Closed => Reply::Reset,
            // Its last acknowledgment has not left yet; RFC 1337: a reset must not end it.
            State::TimeWait if seg.has(RST) => Reply::None,
            State::TimeWait => Reply::Ack,
            State::SynSent => self.on_syn_sent(cx, seg),
            _ => self.on_synchronized(cx, seg),
        }
    }

    fn on_synchronized(&mut self, cx: &mut Context, seg: &Segment) -> Reply {
        if let Err(reply) = self.check(cx, seg) {
            return reply;
        }
        if self.state == State::SynReceived && !self.finish_crossed_syns(cx, seg) {
            return Reply::Reset;
        }
        if let Some(reply) = self.check_acknowledgment(cx, seg) {
            return reply;
        }
        // Only now: what does not fit the connection may come from anybody.
        self.heard_us = cx.now_us;
        self.keep_timestamp(cx, seg);
        self.take_ecn(seg);
        self.acknowledge(cx, seg);
        self.after_acknowledgment(cx);
        if self.state == State::TimeWait || self.state == State::Closed {
            return Reply::None;
        }
        if seg.has(SYN) {
            // The answer to crossed SYNs: bytes and a FIN behind it are sent again, in segments whose numbers are those of
            // their bytes.
            return Reply::None;
        }
        // RFC 9293, 3.10.7.4, sixth: behind the peer's FIN there can be nothing urgent.
        if seg.has(URG) && self.can_still_receive() {
            self.take_urgent(cx, seg);
        }
        self.take_data(cx, seg)
    }

    /// PAWS, sequence numbers, RST and SYN: the first checks of RFC 9293, 3.10.7.4, with RFC 5961.
    fn check(&mut self, cx: &mut Context, seg: &Segment) -> Result<(), Reply> {
        if self.is_old_timestamp(cx, seg) && !seg.has(RST) {
            cx.stats.paws_estab += 1;
            return Err(self.answer_unacceptable(cx, seg));
        }
        if !self.is_acceptable(seg) {
            return Err(match seg.has(RST) {
                true if self.is_reset_without_fin(seg) => self.be_reset(cx),
                true => Reply::None,
                false => self.answer_unacceptable(cx, seg),
            });
        }
        if seg.has(RST) {
            return Err(match self.is_right_behind_window(seg) {
                true => Reply::None,
                false => self.on_reset(cx, seg),
            });
        }
        if seg.has(SYN) && self.state != State::SynReceived {
            cx.stats.syn_challenges += 1;
            return Err(self.challenge(cx));
        }
        if !seg.has(ACK) {
            return Err(Reply::None);
        }
        Ok(())
    }

    fn is_old_timestamp(&self, cx: &Context, seg: &Segment) -> bool {
        let Some((value, _)) = seg.options.timestamps else {
            return false;
        };
        self.has_timestamps && before(value, self.ts_recent) && !self.is_timestamp_outdated(cx)
    }

    /// RFC 7323, 5.5: the peer's clock may have gone half around since.
    fn is_timestamp_outdated(&self, cx: &Context) -> bool {
        let age_s = ((cx.now_us / 1_000_000) as u32).wrapping_sub(self.ts_recent_s);
        self.ts_recent_s == 0 || age_s >= TIMESTAMP_LIFE_S
    }

    /// Whether any part of the segment lies in the window (RFC 9293, table 6). Data that was received
    /// and not yet acknowledged counts as inside.
    fn is_acceptable(&self, seg: &Segment) -> bool {
        let edge = self.rcv_nxt.wrapping_add(self.receive_window());
        !before(seg.end(), self.rcv_acked) && !after(seg.seq, edge)
    }

    /// RFC 5961, 3.2: a reset there is outside, and dropped without an answer. Other segments Linux takes there
    /// for ones that may be in the window, and so does [`Self::is_acceptable`].
    fn is_right_behind_window(&self, seg: &Segment) -> bool {
        let window = self.receive_window();
        let is_behind = window > 0 && seg.seq == self.rcv_nxt.wrapping_add(window);
        // Where pieces fill the window to its end that is the number of a peer that gives up.
        is_behind && self.reassembly.end() != Some(seg.seq)
    }

    /// A segment out of the window is answered by an acknowledgment; one without data only twice a
    /// second, so that two confused ends do not answer each other for ever.
    fn answer_unacceptable(&mut self, cx: &mut Context, seg: &Segment) -> Reply {
        if !seg.payload.is_empty() && !seg.has(SYN) {
            if before(seg.seq, self.rcv_nxt) && self.has_sack {
                cx.stats.dsack_sent += 1;
                let end = crate::seq::earlier(seg.end(), self.rcv_nxt);
                self.reassembly.note_duplicate(seg.seq, end);
            }
            self.enter_quick_acks();
            return Reply::Ack;
        }
        if self.may_answer_invalid(cx) {
            return Reply::Ack;
        }
        Reply::None
    }

    fn may_answer_invalid(&mut self, cx: &Context) -> bool {
        may_answer_invalid(
            &mut self.challenged_us,
            cx.now_us,
            cx.config.invalid_pause_us,
        )
    }

    /// A challenge acknowledgment (RFC 5961), limited for this connection and for all.
    pub fn challenge(&mut self, cx: &mut Context) -> Reply {
        if self.may_answer_invalid(cx) && cx.may_challenge() {
            cx.stats.challenge_acks += 1;
            return Reply::Ack;
        }
        Reply::None
    }

    /// RFC 5961, 3.2: only the exact number resets; another one in the window is challenged.
    fn on_reset(&mut self, cx: &mut Context, seg: &Segment) -> Reply {
        let at_end_of_pieces = self.reassembly.end().is_some_and(|end| end == seg.seq);
        if seg.seq != self.rcv_nxt && !at_end_of_pieces {
            return self.challenge(cx);
        }
        self.be_reset(cx)
    }

    /// Some stacks (macOS) do not count their own FIN in the number of a reset behind it; Linux takes it too.
    fn is_reset_without_fin(&self, seg: &Segment) -> bool {
        let has_fin = matches!(
            self.state,
            State::CloseWait | State::Closing | State::LastAck
        );
        has_fin && seg.seq == self.rcv_nxt.wrapping_sub(1)
    }

    fn be_reset(&mut self, cx: &mut Context) -> Reply {
        let error = match self.state {
            State::SynReceived => Error::ConnectionRefused,
            State::CloseWait => Error::BrokenPipe,
            _ => Error::ConnectionReset,
        };
        cx.stats.estab_resets += 1;
        self.fail(cx, error);
        Reply::None
    }

    /// RFC 9293, 3.10.7.4, fifth, with RFC 5961, 5: an acknowledgment of what was never sent, or of
    /// what is long gone. An answer ends the segment's way.
    fn check_acknowledgment(&mut self, cx: &mut Context, seg: &Segment) -> Option<Reply> {
        if after(seg.ack, self.snd_nxt) {
            return Some(self.challenge(cx));
        }
        let oldest = self.snd_una.wrapping_sub(self.snd_wnd_max);
        if before(seg.ack, oldest) {
            return Some(self.challenge(cx));
        }
        None
    }

    /// Both sides opened at once: the acknowledgment of our SYN opens the connection.
    fn finish_crossed_syns(&mut self, cx: &mut Context, seg: &Segment) -> bool {
        if !after(seg.ack, self.snd_una) || after(seg.ack, self.snd_nxt) {
            return false;
        }
        // A connection that was closed meanwhile ends now (RFC 9293, 3.10.4, SYN-RECEIVED).
        self.state = match self.fin_queued {
            true => State::FinWait1,
            false => State::Established,
        };
        self.open(cx, seg);
        true
    }

    /// RFC 7323, 4.3: the timestamp of the first segment that is not acknowledged is the one to be echoed.
    #[inline]
    fn keep_timestamp(&mut self, cx: &Context, seg: &Segment) {
        let Some((value, _)) = seg.options.timestamps else {
            return;
        };
        let is_first = !after(seg.seq, self.rcv_acked);
        if is_first && (!before(value, self.ts_recent) || self.is_timestamp_outdated(cx)) {
            self.ts_recent = value;
            self.ts_recent_s = (cx.now_us / 1_000_000) as u32;
        }
    }

    /// RFC 3168, 6.1.3: congestion is echoed until the sender says that it has reduced. Its window may then be a single
    /// segment, whose acknowledgment must not wait (as Linux's tcp_ecn_accept_cwr).
    fn take_ecn(&mut self, seg: &Segment) {
        if !self.has_ecn {
            return;
        }
        if seg.has(CWR) {
            self.ece_wanted = false;
            self.ack_due |= !seg.payload.is_empty();
        }
        if seg.ecn == ip::CE {
            self.ece_wanted = true;
            self.enter_quick_acks();
        }
    }

    /// The acknowledgment of our FIN moves the state on.
    fn after_acknowledgment(&mut self, cx: &mut Context) {
        if !self.fin_sent || self.snd_una != self.snd_nxt {
            return;
        }
        match self.state {
            State::FinWait1 => {
                self.state = State::FinWait2;
                self.limit_fin_wait(cx);
            }
            State::Closing => self.state = State::TimeWait,
            State::LastAck => self.finish(cx),
            _ => {}
        }
    }

    /// Nobody reads any more: FIN_WAIT_2 must not last for ever.
    pub fn limit_fin_wait(&mut self, cx: &mut Context) {
        if self.is_orphan && self.state == State::FinWait2 {
            let own = self.settings.fin_wait_us;
            let wait_us = if own > 0 { own } else { cx.config.fin_wait_us };
            self.slow.linger_at_us = cx.now_us + wait_us;
            cx.wheel.arm(self.index, self.slow.linger_at_us);
        }
    }

    /// Both directions ended in order.
    fn finish(&mut self, cx: &mut Context) {
        self.state = State::Closed;
        self.drop_output(cx);
        self.notify(cx, HANGUP | READABLE | WRITABLE);
    }

    fn take_data(&mut self, cx: &mut Context, seg: &Segment) -> Reply {
        if seg.payload.is_empty() && !seg.has(FIN) {
            return Reply::None;
        }
        match self.state {
            State::Established | State::FinWait1 | State::FinWait2 => {}
            // RFC 9293, 3.10.7.4, seventh: after the peer's FIN nothing more can come.
            _ => return Reply::Ack,
        }
        let is_behind_fin = self
            .fin_seq
            .is_some_and(|fin| !before(seg.seq, fin) && after(seg.end(), fin.wrapping_add(1)));
        if is_behind_fin {
            return Reply::Ack;
        }
        let is_gone = self.is_orphan || self.is_shut_reading && self.fin_queued;
        let end = seg.seq.wrapping_add(seg.payload.len() as u32);
        if is_gone && !seg.payload.is_empty() && after(end, self.rcv_nxt) {
            // RFC 9293, 3.6.1: data for a program that is gone, or has ended both directions.
            cx.stats.abort_on_data += 1;
            self.fail(cx, Error::ConnectionReset);
            return Reply::Reset;
        }
        self.receive(cx, seg)
    }

    /// RFC 9293, 3.10.7.3.
    fn on_syn_sent(&mut self, cx: &mut Context, seg: &Segment) -> Reply {
        let acceptable = seg.ack == self.snd_nxt && self.echo_is_ours(cx, seg);
        if seg.has(ACK) && !acceptable {
            return if seg.has(RST) {
                Reply::None
            } else {
                Reply::Reset
            };
        }
        if seg.has(RST) {
            if seg.has(ACK) {
                cx.stats.attempt_fails += 1;
                self.fail(cx, Error::ConnectionRefused);
            }
            return Reply::None;
        }
        if !seg.has(SYN) {
            return Reply::None;
        }
        self.take_syn(cx, seg);
        if seg.has(ACK) {
            self.state = State::Established;
            self.open(cx, seg);
            self.acknowledge_syn(cx, seg);
            self.ack_pending = true;
            self.ack_soon = true;
            self.queue_output(cx);
            // Bytes and a FIN that come along count (RFC 9293, 3.10.7.3): what they answer has our number.
            return self.take_data(cx, &seg.behind_syn());
        }
        self.state = State::SynReceived;
        self.recovery.timeouts = 0;
        self.syn_due = true;
        self.queue_output(cx);
        Reply::None
    }

    /// A SYN/ACK must echo a timestamp of ours, when it echoes one (RFC 7323, 3.2).
    fn echo_is_ours(&self, cx: &Context, seg: &Segment) -> bool {
        let Some((_, echo)) = seg.options.timestamps else {
            return true;
        };
        let first = self.timestamp(self.opened_us);
        echo == 0 || !before(echo, first) && !after(echo, self.timestamp(cx.now_us))
    }

    /// Takes the peer's SYN in: its number and what it offers.
    pub fn take_syn(&mut self, cx: &mut Context, seg: &Segment) {
        let options = &seg.options;
        self.irs = seg.seq;
        self.rcv_nxt = seg.seq.wrapping_add(1);
        self.rcv_acked = self.rcv_nxt;
        self.rcv_edge = self.rcv_nxt.wrapping_add(self.syn_window());
        self.has_sack = options.sack_permitted && cx.config.sack;
        self.has_timestamps = options.timestamps.is_some() && cx.config.timestamps;
        if let Some((value, _)) = options.timestamps.filter(|_| self.has_timestamps) {
            self.ts_recent = value;
            self.ts_recent_s = (cx.now_us / 1_000_000) as u32;
        }
        match options.window_scale.filter(|_| cx.config.window_scaling) {
            Some(shift) => self.snd_scale = shift.min(14),
            None => self.rcv_scale = 0,
        }
        let is_answer = seg.has(ACK);
        let asked = if is_answer { ECE } else { ECE | CWR };
        self.has_ecn = self.has_ecn && seg.flags & (ECE | CWR) == asked;
        self.peer_mss = u32::from(options.mss.unwrap_or(self.default_mss()));
        self.set_path_mtu(self.path_mtu);
    }

    /// What a peer takes that states no MSS (RFC 9293, 3.7.1).
    fn default_mss(&self) -> u16 {
        if self.flow.remote.is_v4() {
            536
        } else {
            1_220
        }
    }

    /// The connection is established.
    pub fn open(&mut self, cx: &mut Context, seg: &Segment) {
        self.snd_wnd = match seg.has(SYN) {
            true => u32::from(seg.window),
            false => u32::from(seg.window) << self.snd_scale,
        };
        self.snd_wl1 = seg.seq;
        self.snd_wnd_max = self.snd_wnd;
        self.urgent = None;
        let syn_timeouts = core::mem::take(&mut self.recovery.timeouts);
        self.backoff = 0;
        self.retransmit = RetransmitTimer::Off;
        self.rcv_mss = self.mss.min(536).min(self.receive_window() / 2).max(88);
        self.start_congestion(cx, syn_timeouts);
        self.start_tuning(cx);
        self.restart_keepalive(cx);
        self.notify(cx, WRITABLE);
    }

    fn acknowledge_syn(&mut self, cx: &mut Context, seg: &Segment) {
        self.snd_una = seg.ack;
        if !self.syn_resent {
            let rtt = cx.now_us - self.opened_us;
            self.rtt.sample(rtt, cx.now_us);
        }
        self.recovery.high_seq = self.snd_una;
        if self.unsent() > 0 || self.fin_queued {
            self.queue_output(cx);
        }
    }

    /// An error that ended an attempt, or that only a timeout will make known.
    pub fn on_unreachable(&mut self, cx: &mut Context, error: Error) {
        if matches!(self.state, State::SynSent | State::SynReceived) {
            cx.stats.attempt_fails += 1;
            self.fail(cx, error);
        } else {
            self.soft_error = Some(error);
        }
    }
}
