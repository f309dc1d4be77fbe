//! Data from the peer: into the receive ring, in order or not, and out to the application.

use crate::config::QUICK_ACKS;
use crate::conn::{Conn, Context, State, Urgent, PEER_CLOSED, READABLE, URGENT};
use crate::input::Reply;
use crate::seq::{after, before, distance, earlier, later};
use crate::wire::tcp::{Segment, FIN, PSH};

/// Smaller segments are full only of a peer that says nothing of their size (RFC 9293, 3.7.1), or with a small MTU; and the
/// smallest that may be full (Linux's TCP_MIN_MSS).
const SIZE_USUAL: u32 = 536;
const SIZE_LEAST: u32 = 88;

impl Conn {
    /// Takes the bytes and the FIN of a segment that may be exchanged in this state.
    pub fn receive(&mut self, cx: &mut Context, seg: &Segment) -> Reply {
        let end = seg.seq.wrapping_add(seg.payload.len() as u32);
        let edge = self.edge_for(seg.seq, end);
        self.is_overrun |= after(edge, self.rcv_nxt.wrapping_add(self.receive_window()));
        let from = later(seg.seq, self.rcv_nxt);
        let to = earlier(end, edge);
        let has_fin = seg.has(FIN) && !after(end, edge);
        if before(seg.seq, self.rcv_nxt) && !seg.payload.is_empty() {
            self.note_old_bytes(cx, seg.seq, earlier(end, self.rcv_nxt));
        }
        let is_old = !after(seg.end(), self.rcv_nxt);
        let is_beyond = !before(from, edge) && !seg.payload.is_empty() && !before(seg.seq, edge);
        if is_old || is_beyond {
            self.enter_quick_acks();
            return Reply::Ack;
        }
        let start = from.wrapping_sub(seg.seq) as usize;
        let count = distance(from, to) as usize;
        let bytes = &seg.payload[start..start + count];
        if self.take_bytes(cx, from, bytes).is_err() {
            cx.stats.rcv_pruned += 1;
            let taken = self.take_beginning(cx, from, bytes);
            if taken > 0 {
                self.after_bytes(cx, from, taken as u32, seg.has(PSH));
            }
            return Reply::Ack;
        }
        if has_fin {
            // Of two the first is the end.
            self.fin_seq = Some(self.fin_seq.map_or(end, |known| earlier(known, end)));
        }
        self.after_bytes(cx, from, bytes.len() as u32, seg.has(PSH))
    }

    /// Up to where bytes are taken of a segment from `begin` to `end`. One that begins in the window may go on beyond it
    /// while nothing waits to be read, as on Linux: the memory is there, and a peer that ignores the window would not send less.
    fn edge_for(&self, begin: u32, end: u32) -> u32 {
        let edge = self.rcv_nxt.wrapping_add(self.receive_window());
        match self.rx.is_empty() && before(begin, edge) {
            true => later(edge, end),
            false => edge,
        }
    }

    /// RFC 2883, 4: the sender gets a report of the bytes that it has sent twice, at once, whatever else came with them.
    fn note_old_bytes(&mut self, cx: &mut Context, left: u32, right: u32) {
        self.ack_due = true;
        if self.has_sack {
            cx.stats.dsack_sent += 1;
            self.reassembly.note_duplicate(left, right);
        }
    }

    /// Copies bytes to their place. Without memory the segment counts as lost.
    #[inline]
    fn take_bytes(&mut self, cx: &mut Context, from: u32, bytes: &[u8]) -> Result<(), ()> {
        let ahead = distance(self.rcv_nxt, from);
        let at = self.rx.len() + ahead as usize;
        let kept = match self.reassembly.end() {
            Some(end) => self.rx.len() + distance(self.rcv_nxt, end) as usize,
            None => self.rx.len(),
        };
        let needed = at + bytes.len();
        let has_memory = bytes.is_empty()
            || (ahead == 0 || cx.pool.can_spare(&self.rx, needed))
                && cx.pool.reserve(&mut self.rx, needed, kept);
        if !has_memory {
            return Err(());
        }
        if ahead > 0 {
            let to = from.wrapping_add(bytes.len() as u32);
            if !bytes.is_empty() && !self.reassembly.insert(from, to) {
                return Err(());
            }
            cx.stats.ofo_queued += 1;
        }
        self.rx.write_at(at, bytes);
        Ok(())
    }

    /// As many bytes in order as the smallest ring has room for: otherwise a peer whose segments are larger than that would
    /// repeat them for as long as memory is short. The number of bytes.
    fn take_beginning(&mut self, cx: &mut Context, from: u32, bytes: &[u8]) -> usize {
        let held = self.rx.len();
        if from != self.rcv_nxt || !cx.pool.reserve(&mut self.rx, 1, held) {
            return 0;
        }
        let count = (self.rx.capacity() - held).min(bytes.len());
        let is_taken = self.take_bytes(cx, from, &bytes[..count]).is_ok();
        count * usize::from(is_taken)
    }

    #[inline]
    fn after_bytes(&mut self, cx: &mut Context, from: u32, count: u32, is_pushed: bool) -> Reply {
        if count > 0 {
            self.note_arrival(cx, count, is_pushed);
        }
        if from != self.rcv_nxt {
            // RFC 5681, 4.2: out of order is acknowledged at once.
            self.set_quick_acks(cx.config.quick_acks.loss);
            self.widen_for_hole(cx);
            return Reply::Ack;
        }
        let had_hole = !self.reassembly.is_empty();
        self.advance(cx, count);
        self.ack_pending = true;
        self.ack_due |= had_hole;
        self.queue_output(cx);
        Reply::None
    }

    /// `count` bytes at `rcv_nxt` are there; what was waiting behind them is in order now too.
    #[inline]
    fn advance(&mut self, cx: &mut Context, count: u32) {
        let mut next = self.rcv_nxt.wrapping_add(count);
        if !self.reassembly.is_empty() {
            next = self.reassembly.advance(next);
        }
        // Where a peer has sent bytes behind its FIN too, its stream ends with the FIN.
        next = self.fin_seq.map_or(next, |fin| earlier(next, fin));
        let total = next.wrapping_sub(self.rcv_nxt);
        self.rx.extend(total as usize);
        self.totals.bytes_received += u64::from(total);
        self.rcv_nxt = next;
        self.take_urgent_byte(cx);
        self.rcv_edge = later(self.rcv_edge, self.rcv_nxt);
        self.measure_receiver_rtt(cx);
        if total > 0 {
            self.hop.progress_us = cx.now_us;
        }
        if total > 0 && (self.urgent.is_none() || self.readable_at_once().1 > 0) {
            self.notify(cx, READABLE);
        }
        if self.fin_seq == Some(next) {
            self.take_fin(cx);
        }
    }

    /// RFC 9293, 3.10.7.4, eighth.
    fn take_fin(&mut self, cx: &mut Context) {
        self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
        self.rcv_edge = later(self.rcv_edge, self.rcv_nxt);
        // Nothing can lie behind it.
        self.reassembly.clear();
        self.state = match self.state {
            State::Established => State::CloseWait,
            State::FinWait1 => State::Closing,
            _ => State::TimeWait,
        };
        self.ack_pending = true;
        match self.state {
            State::CloseWait if self.is_end_awaited(cx) => self.is_interactive = true,
            // Our own end may come at once.
            State::CloseWait => self.ack_soon = true,
            _ => self.ack_due = true,
        }
        self.notify(cx, READABLE | PEER_CLOSED);
    }

    /// Whether a program to which all bytes were just handed over may close too, and our FIN acknowledge the peer's: this
    /// waits as for an answer, as on Linux once they are read. Handed over are those, too, that still wait in a buffer
    /// between engine and program.
    fn is_end_awaited(&self, cx: &Context) -> bool {
        let has_received = self.received_us > 0 && self.rx.is_empty();
        has_received && cx.now_us - self.received_us < cx.config.delayed_ack_us
    }

    /// Notes about arriving data for delayed acknowledgments.
    #[inline]
    fn note_arrival(&mut self, cx: &Context, count: u32, is_pushed: bool) {
        let pause_us = cx.now_us - self.received_us;
        let quick_acks = &cx.config.quick_acks;
        if self.received_us == 0 {
            self.set_quick_acks(quick_acks.start);
        } else if pause_us > self.rto_us(&cx.config) {
            self.set_quick_acks(quick_acks.idle);
        }
        self.received_us = cx.now_us;
        // Small writes, which most requests are, say nothing.
        if count > self.rcv_mss || count >= SIZE_USUAL || !is_pushed {
            self.learn_size(count, is_pushed);
        }
    }

    /// The peer's full segment (as Linux's tcp_measure_rcv_mss): the largest one, or a smaller one that comes twice in a row
    /// and is probably full. What is larger than any was merged of several.
    fn learn_size(&mut self, count: u32, is_pushed: bool) {
        if count > self.rcv_mss {
            if count <= self.advertised_mss() {
                self.rcv_mss = count;
            }
            return;
        }
        let may_be_full = count >= SIZE_USUAL || count >= SIZE_LEAST && !is_pushed;
        if may_be_full && count < self.rcv_mss {
            if self.rcv_last == count {
                self.rcv_mss = count;
            }
            self.rcv_last = count;
        }
    }

    /// The next acknowledgments are not delayed.
    pub fn enter_quick_acks(&mut self) {
        self.set_quick_acks(QUICK_ACKS);
    }

    fn set_quick_acks(&mut self, count: u8) {
        self.quick_acks = count;
        self.is_interactive = false;
    }

    /// The urgent pointer (RFC 6093: it points behind the urgent byte, as every stack has it).
    pub fn take_urgent(&mut self, cx: &mut Context, seg: &Segment) {
        let pointer = u32::from(seg.urgent);
        let at = seg
            .seq
            .wrapping_add(pointer.saturating_sub(u32::from(pointer > 0)));
        let is_old =
            before(at, self.rcv_nxt) || self.urgent.is_some_and(|known| !after(at, known.seq));
        if is_old {
            return;
        }
        self.urgent = Some(Urgent {
            seq: at,
            byte: None,
            is_read: false,
        });
        let start = at.wrapping_sub(seg.seq) as usize;
        let in_segment = seg.payload.get(start);
        if let (Some(byte), Some(urgent)) = (in_segment, &mut self.urgent) {
            urgent.byte = Some(*byte);
        }
        self.notify(cx, URGENT);
    }

    /// The urgent byte may come later than its announcement.
    fn take_urgent_byte(&mut self, cx: &mut Context) {
        let Some(urgent) = &mut self.urgent else {
            return;
        };
        if urgent.byte.is_none() && !urgent.is_read && before(urgent.seq, self.rcv_nxt) {
            let back = self.rcv_nxt.wrapping_sub(urgent.seq) as usize;
            if let Some(at) = self.rx.len().checked_sub(back) {
                urgent.byte = self.rx.slices(at, 1).0.first().copied();
                self.notify(cx, URGENT);
            }
        }
    }

    /// The window that an acknowledgment advertises now (RFC 9293, 3.8.6.2.2). The window advertised before is
    /// still accepted; the field gives it but for less than a unit (RFC 7323, 2.4).
    #[inline]
    pub fn advertise_window(&mut self) -> u16 {
        let current = self.receive_window();
        let window = self.usable_window().max(current);
        // Not up: with each round trip the edge would move by a part of a unit that the buffer cannot hold.
        let field = (window >> self.rcv_scale).min(0xffff);
        let edge = self.rcv_nxt.wrapping_add(field << self.rcv_scale);
        self.rcv_edge = later(self.rcv_edge, edge);
        field as u16
    }

    /// Bytes that the buffer can take, or zero while they are too few to advertise.
    fn usable_window(&self) -> u32 {
        let free = self.rcv_limit.saturating_sub(self.rx.len() as u32);
        if free < self.rcv_limit / 2 && (free < self.rcv_limit / 16 || free < self.rcv_mss) {
            return 0;
        }
        // No more than can be said: what lies beyond opens nothing for the peer.
        (free >> self.rcv_scale).min(0xffff) << self.rcv_scale
    }

    /// The application took `count` bytes: grow the window with its pace, and notify the peer when
    /// the window opens by much (as Linux's tcp_cleanup_rbuf).
    pub fn after_read(&mut self, cx: &mut Context, count: u32) {
        self.tune_window(cx, count);
        if self.rx.is_empty() && self.reassembly.is_empty() {
            cx.pool.release(&mut self.rx);
        }
        if !self.can_still_receive() {
            return;
        }
        let current = self.receive_window();
        let usable = self.usable_window();
        let opens = usable > 0 && usable >= 2 * current;
        let overdue = self.ack_pending && self.is_ack_overdue(&cx.config);
        if opens || overdue {
            self.ack_pending = true;
            self.ack_due = true;
            self.queue_output(cx);
        }
    }

    /// Whether the peer may still send bytes.
    pub fn can_still_receive(&self) -> bool {
        let open = matches!(
            self.state,
            State::Established | State::FinWait1 | State::FinWait2
        );
        open && self.fin_seq.is_none_or(|fin| before(self.rcv_nxt, fin))
    }

    /// Begins to measure how fast the application reads.
    pub fn start_tuning(&mut self, cx: &Context) {
        self.tuning.since_us = cx.now_us;
        self.tuning.space = self.rcv_limit.min(cx.config.initial_window * self.mss);
        self.tuning.rtt_seq = self.rcv_nxt.wrapping_add(self.receive_window());
        self.tuning.rtt_since_us = cx.now_us;
    }

    /// The time in which a window arrives is an upper bound of the round-trip time.
    #[inline]
    fn measure_receiver_rtt(&mut self, cx: &Context) {
        if before(self.rcv_nxt, self.tuning.rtt_seq) {
            return;
        }
        let rtt = (cx.now_us - self.tuning.rtt_since_us).clamp(1, 60_000_000) as u32;
        let known = self.tuning.rtt_us;
        self.tuning.rtt_us = if known == 0 {
            rtt
        } else {
            known - known / 8 + rtt / 8
        }
        .min(rtt * 2);
        self.tuning.rtt_seq = self.rcv_nxt.wrapping_add(self.receive_window());
        self.tuning.rtt_since_us = cx.now_us;
    }

    /// Bytes behind a hole take their place besides what is read in two round trips (as Linux's tcp_rcvbuf_grow), but no
    /// more than is read in one, or than the first window: a peer must not fill the memory of all with holes. Not before
    /// somebody can read, and not without SACK, where an acknowledgment with another window is not a duplicate (RFC 5681, 2).
    fn widen_for_hole(&mut self, cx: &Context) {
        let may_grow = self.has_sack && !self.is_unaccepted && !self.settings.has_fixed_receive;
        if may_grow && self.rcv_limit < cx.config.receive_bytes_max {
            let most = self.tuning.space.max(cx.config.receive_bytes);
            let behind = self.reassembly.bytes().min(most);
            let read = self.tuning.space.saturating_mul(2);
            self.widen_to(cx, read.saturating_add(behind));
        }
    }

    fn widen_to(&mut self, cx: &Context, wanted: u32) {
        if !self.settings.has_fixed_receive && !cx.pool.is_short() {
            let limit = cx.config.receive_bytes_max.min(0xffff << self.rcv_scale);
            self.rcv_limit = self.rcv_limit.max(wanted.min(limit));
        }
    }

    /// Dynamic right-sizing: twice of what the application reads in a round trip.
    fn tune_window(&mut self, cx: &Context, count: u32) {
        self.tuning.copied = self.tuning.copied.saturating_add(count);
        let rtt_us = match (self.rtt.srtt_us, self.tuning.rtt_us) {
            (0, other) | (other, 0) => other,
            (own, seen) => own.min(seen),
        };
        if rtt_us == 0 || cx.now_us - self.tuning.since_us < u64::from(rtt_us) {
            return;
        }
        if self.tuning.copied > self.tuning.space {
            let copied = self.tuning.copied;
            self.widen_to(cx, copied.saturating_mul(2).saturating_add(16 * self.mss));
        }
        self.tuning.space = self.tuning.space.max(self.tuning.copied);
        self.tuning.copied = 0;
        self.tuning.since_us = cx.now_us;
    }
}
