//! What leaves, and when: data, FIN, retransmissions, probes, acknowledgments.

use crate::chrono::Limit;
use crate::conn::{Conn, Context, Full, RetransmitTimer, State};
use crate::loss::{Forward, Phase};
use crate::neighbour::Link;
use crate::segment::{Outgoing, SACK_BYTES};
use crate::sent::{self, Node, LOST, NONE, RETRANSMITTED, SACKED};
use crate::seq::{after, before, distance};
use crate::sink::TxSink;
use crate::wire::ip;
use crate::wire::tcp::{ACK, FIN, PSH};

/// How long a corked or silly small segment is held back (Linux's, RFC 9293, 3.8.6.2.1).
const HOLD_US: u64 = 200_000;

/// Segments of a connection in flight at most: 24 MB over Ethernet. Of a peer that takes small ones only, and when all
/// connections together have many.
const SEGMENTS_MAX: u32 = 16_384;
const SEGMENTS_SMALL_MAX: u32 = 4_096;
/// Below what every host takes (RFC 9293, 3.7.1).
const MSS_SMALL: u32 = 500;
const SEGMENTS_SCARCE: u32 = 64;

fn waits_to_be_resent(node: &Node) -> bool {
    node.is(LOST) && !node.is(RETRANSMITTED)
}

impl Conn {
    /// Sends all that may leave now. False when the device has no room left.
    pub fn flush<S: TxSink>(&mut self, cx: &mut Context, link: &mut Link, sink: &mut S) -> bool {
        match self.state {
            State::Closed => return true,
            State::TimeWait => return self.flush_ack(cx, link, sink),
            State::SynSent | State::SynReceived => return self.flush_syn(cx, link, sink),
            _ => {}
        }
        let done = self.flush_forward(cx, link, sink)
            && self.flush_retransmissions(cx, link, sink)
            && self.flush_loss_probe(cx, link, sink)
            && self.flush_new(cx, link, sink)
            && self.flush_probe(cx, link, sink);
        self.note_limit(cx);
        self.is_refused = !done;
        if self.is_refused && self.retransmit == RetransmitTimer::Off {
            // Nothing is in flight whose timer would end the connection, should the device never have room.
            let rto_us = self.rto_us(&cx.config);
            self.arm(cx, RetransmitTimer::Persist, cx.now_us + rto_us);
        }
        // An acknowledgment does not wait for room for a GSO segment.
        let may_acknowledge = done || cx.full == Full::Gso;
        may_acknowledge && self.flush_ack(cx, link, sink) && done
    }

    /// F-RTO (RFC 5682, 3.1, step 2b): new segments before what the timeout took for lost, when there are any.
    fn flush_forward<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
    ) -> bool {
        if self.recovery.forward != Forward::Advancing || self.has_gone_forward() {
            return true;
        }
        if !self.flush_new(cx, link, sink) {
            return false;
        }
        if !self.has_gone_forward() {
            self.recovery.forward = Forward::Off;
        }
        true
    }

    /// New segments left after a timeout: what arrives next says whether anything must be sent again.
    fn has_gone_forward(&self) -> bool {
        self.recovery.forward == Forward::Advancing && after(self.snd_nxt, self.recovery.high_seq)
    }

    /// Sends again what is taken for lost, as far as the window allows.
    fn flush_retransmissions<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
    ) -> bool {
        if self.has_gone_forward() {
            return true;
        }
        let known = self.recovery.resend_from;
        let mut index = match known.filter(|(seq, _)| !before(*seq, self.snd_una)) {
            Some((_, index)) => index,
            None => self.sent.head,
        };
        while self.recovery.lost_out > self.recovery.retrans_out
            && index != NONE
            && self.in_flight() < self.cwnd
        {
            let node = *cx.nodes.get(index);
            if self.is_beyond_window(node.seq) {
                break;
            }
            self.recovery.resend_from = Some((node.seq, index));
            if waits_to_be_resent(&node) {
                let Some((last, count)) = self.resend_lost(cx, link, sink, index) else {
                    return false;
                };
                if self.recovery.phase == Phase::Loss {
                    cx.stats.slow_start_retrans += count;
                } else {
                    cx.stats.fast_retrans += count;
                }
                index = last;
            }
            index = cx.nodes.get(index).next;
        }
        true
    }

    /// Sends a lost segment again, with those behind it that left in the same frame, as Linux does. The last one of them and
    /// how many they were; nothing when the device has no room.
    fn resend_lost<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
        first: u32,
    ) -> Option<(u32, u64)> {
        let (last, count) = self.lost_of_frame(cx, first);
        let sent = match count {
            1 => self.resend(cx, link, sink, first),
            _ => self.resend_train(cx, link, sink, (first, last)),
        };
        sent.then_some((last, count))
    }

    /// The last of the lost segments from this one on that may leave in one frame again, and how many they are: those of the
    /// same frame up to the next hole, of one size but for the last, as far as windows and device allow.
    fn lost_of_frame(&self, cx: &Context, first: u32) -> (u32, u64) {
        let len = |node: &Node| node.end.wrapping_sub(node.seq);
        let mut last = *cx.nodes.get(first);
        let size = len(&last);
        let room = self.cwnd.saturating_sub(self.in_flight());
        let most = match size <= self.mss && self.is_in_window(&last) {
            true => u64::from(self.frame_segments(cx, size).min(room)),
            false => 1,
        };
        let (mut index, mut count) = (first, 1);
        while count < most && last.next != NONE && !last.is(sent::FRAME_END) && len(&last) == size {
            let next = *cx.nodes.get(last.next);
            let fits = len(&next) <= size && !next.is(sent::FIN) && self.is_in_window(&next);
            if !fits || !waits_to_be_resent(&next) {
                break;
            }
            (index, last, count) = (last.next, next, count + 1);
        }
        (index, count)
    }

    fn is_in_window(&self, node: &Node) -> bool {
        distance(self.snd_una, node.end) <= self.snd_wnd
    }

    /// Sends segments again in one GSO segment.
    fn resend_train<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
        (first, last): (u32, u32),
    ) -> bool {
        let node = *cx.nodes.get(first);
        let segment = Outgoing {
            seq: node.seq,
            flags: ACK | PSH,
            offset: node.seq.wrapping_sub(self.tx_seq) as usize,
            len: cx.nodes.get(last).end.wrapping_sub(node.seq) as usize,
            gso_size: node.end.wrapping_sub(node.seq) as usize,
            ecn: 0,
        };
        if !self.emit(cx, link, sink, segment) {
            return false;
        }
        let mut index = first;
        loop {
            self.note_resent(cx, index);
            self.count_sent();
            if index == last {
                break;
            }
            index = cx.nodes.get(index).next;
        }
        self.after_send(cx, false);
        true
    }

    /// Whether the peer has shut its window before a segment in flight (RFC 9293, 3.8.6, SHLD-16). The first one is sent
    /// again all the same: its answer says when the window opens.
    fn is_beyond_window(&self, seq: u32) -> bool {
        seq != self.snd_una && distance(self.snd_una, seq) >= self.snd_wnd
    }

    /// Bytes of a segment to send again that the window takes. All where it takes none: see [`Self::is_beyond_window`]. While
    /// segments are scarce, too, since each cut makes one more.
    fn bytes_in_window(&self, cx: &Context, seq: u32) -> u32 {
        match self.snd_wnd.saturating_sub(distance(self.snd_una, seq)) {
            0 => u32::MAX,
            _ if self.segments_left(cx) == 0 => u32::MAX,
            left => left,
        }
    }

    /// Sends a segment again; one larger than the path carries now, or the window takes, is cut first.
    fn resend<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
        index: u32,
    ) -> bool {
        let node = *cx.nodes.get(index);
        let most = self.mss.max(1).min(self.bytes_in_window(cx, node.seq));
        if node.end.wrapping_sub(node.seq) > most + u32::from(node.is(sent::FIN)) {
            self.split(cx, index, node.seq.wrapping_add(most));
        }
        let node = *cx.nodes.get(index);
        let has_fin = node.is(sent::FIN);
        let len = node.end.wrapping_sub(node.seq) - u32::from(has_fin);
        let segment = Outgoing {
            seq: node.seq,
            flags: ACK
                | if has_fin { FIN } else { 0 }
                | if node.is(sent::PUSHED) { PSH } else { 0 },
            offset: node.seq.wrapping_sub(self.tx_seq) as usize,
            len: len as usize,
            gso_size: 0,
            ecn: 0,
        };
        if !self.emit(cx, link, sink, segment) {
            return false;
        }
        self.note_resent(cx, index);
        self.count_sent();
        self.after_send(cx, false);
        true
    }

    /// The path carries less than it did: what is larger is cut and sent again (RFC 1191, 6.5).
    pub fn resend_too_big(&mut self, cx: &mut Context) {
        let mut index = self.sent.head;
        let mut lost = 0;
        while index != NONE {
            let node = *cx.nodes.get(index);
            let len = node.end.wrapping_sub(node.seq) - u32::from(node.is(sent::FIN));
            if len > self.mss && !node.is(SACKED) {
                lost += self.mark_lost(cx, index);
            }
            index = node.next;
        }
        if lost > 0 && self.recovery.phase < Phase::Loss {
            // No sign of congestion: until all of it has arrived the window is not reduced for it.
            self.recovery.phase = Phase::Loss;
            self.recovery.high_seq = self.snd_nxt;
            self.recovery.undo_from = None;
        }
        if lost > 0 {
            self.recovery.forward = Forward::Off;
        }
        self.queue_output(cx);
    }

    fn split(&mut self, cx: &mut Context, index: u32, seq: u32) {
        let node = *cx.nodes.get(index);
        cx.nodes.split(&mut self.sent, index, seq);
        self.recovery.marked.clear();
        self.packets_out += 1;
        self.recovery.sacked_out += u32::from(node.is(SACKED));
        self.recovery.lost_out += u32::from(node.is(LOST));
        self.recovery.retrans_out += u32::from(node.is(RETRANSMITTED));
    }

    /// The tail loss probe: new data when there is some, else the last segment again.
    fn flush_loss_probe<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
    ) -> bool {
        if !self.loss_probe_due {
            return true;
        }
        // Since the timer fired everything has arrived, or something behind a hole (RFC 8985, 7.2).
        if self.packets_out == 0 || self.recovery.sacked_out > 0 {
            self.loss_probe_due = false;
            return true;
        }
        let end_before = self.snd_nxt;
        let most = self.mss_beside_sack().min(self.window_left());
        let len = self.unsent_of_record().min(most);
        let is_new = len > 0;
        if !is_new && self.is_beyond_window(cx.nodes.get(self.sent.tail).seq) {
            self.loss_probe_due = false;
            return true;
        }
        let sent = if is_new {
            self.send_new(cx, link, sink, len as usize, len as usize)
        } else {
            let tail = self.sent.tail;
            self.resend(cx, link, sink, tail)
        };
        if sent {
            self.loss_probe_due = false;
            self.recovery.probe = Some((self.snd_nxt, !is_new));
            debug_assert!(is_new || end_before == self.snd_nxt);
            cx.stats.loss_probes += 1;
            let rto_us = self.rto_us(&cx.config);
            self.arm(cx, RetransmitTimer::Timeout, cx.now_us + rto_us);
        }
        sent
    }

    /// Bytes that the peer's window still takes.
    #[inline]
    pub fn window_left(&self) -> u32 {
        distance(self.snd_nxt, self.snd_una.wrapping_add(self.snd_wnd))
    }

    /// What is the limit of a connection that has bytes to deliver, now that all has left that may.
    #[inline]
    pub fn note_limit(&mut self, cx: &mut Context) {
        if self.tx.is_empty() {
            return;
        }
        let unsent = self.unsent();
        let limit = match unsent {
            0 if self.wants_room && self.in_flight() < self.cwnd => Limit::Buffer,
            0 => Limit::None,
            _ if self.in_flight() >= self.cwnd => Limit::None,
            _ if self.window_left() < unsent.min(self.mss) => Limit::Window,
            _ => Limit::None,
        };
        self.chrono.limited_by(limit, cx.now_us);
        // TCP_NOTSENT_LOWAT: sending alone may have made room.
        if self.wants_room && self.unsent_low < u32::MAX {
            self.offer_room(cx);
        }
    }

    /// Bytes of the first record that are not sent: a segment ends with it.
    #[inline]
    fn unsent_of_record(&mut self) -> u32 {
        while self
            .records
            .front()
            .is_some_and(|end| !after(*end, self.snd_nxt))
        {
            self.records.pop_front();
        }
        let unsent = self.unsent();
        let first = self.records.front();
        first.map_or(unsent, |end| unsent.min(distance(self.snd_nxt, *end)))
    }

    /// Sends bytes, and the FIN behind them, that were not sent before.
    #[inline]
    fn flush_new<S: TxSink>(&mut self, cx: &mut Context, link: &mut Link, sink: &mut S) -> bool {
        if self.fin_sent || self.tx.is_empty() && !self.fin_queued {
            return true;
        }
        if self.packets_out == 0 {
            self.restart_after_idle(cx);
        }
        let begun = self.snd_nxt;
        let done = self.flush_unsent(cx, link, sink);
        if self.snd_nxt != begun {
            self.note_use(self.in_flight() >= self.cwnd);
        }
        done
    }

    #[inline]
    fn flush_unsent<S: TxSink>(&mut self, cx: &mut Context, link: &mut Link, sink: &mut S) -> bool {
        loop {
            let unsent = self.unsent();
            if unsent == 0 {
                return self.flush_fin(cx, link, sink);
            }
            let room = self.cwnd.saturating_sub(self.in_flight());
            let room = room.min(self.segments_left(cx));
            if room == 0 {
                return true;
            }
            let mss = self.mss_beside_sack();
            let window = self.window_left();
            let of_record = self.unsent_of_record();
            let len = of_record.min(mss).min(window);
            let ends_record = of_record < unsent && len == of_record;
            if !ends_record && !self.should_send(len, unsent, mss) {
                self.hold_back(cx, window);
                return true;
            }
            let total = match self.train_segments(cx, of_record.min(window), mss, room) {
                0 | 1 => len,
                most => self.train_bytes([of_record, unsent, window], mss, most),
            };
            if !self.send_new(cx, link, sink, len as usize, total as usize) {
                return false;
            }
        }
    }

    /// How many segments more may be in flight: each takes memory, and a peer may state a size of a few bytes. There are
    /// some in flight when there may be no more.
    #[inline]
    fn segments_left(&self, cx: &Context) -> u32 {
        let most = match cx.nodes.in_use() < cx.config.segments_max {
            true if self.mss < MSS_SMALL => SEGMENTS_SMALL_MAX,
            true => SEGMENTS_MAX,
            false => SEGMENTS_SCARCE,
        };
        most.saturating_sub(self.packets_out)
    }

    /// The FIN behind the last byte takes a place in the peer's window as a byte does.
    fn flush_fin<S: TxSink>(&mut self, cx: &mut Context, link: &mut Link, sink: &mut S) -> bool {
        if !self.fin_waits() {
            return true;
        }
        if self.window_left() == 0 {
            self.hold_back(cx, 0);
            return true;
        }
        self.send_new(cx, link, sink, 0, 0)
    }

    /// How many segments of `bytes` that were not sent before may leave in one frame. At most half of the congestion window,
    /// so that acknowledgments come while the other half is under way.
    #[inline]
    fn train_segments(&self, cx: &Context, bytes: u32, mss: u32, room: u32) -> u32 {
        // RFC 3168, 6.1.2: CWR is in the first new segment after a reduction, and in no other one.
        if bytes <= mss || self.cwr_wanted {
            return 1;
        }
        let most = self.frame_segments(cx, mss);
        most.min(room).min((self.cwnd / 2).max(1))
    }

    /// How many segments of this size the device may cut from one frame: no more than leave in a millisecond (as Linux's
    /// tcp_tso_autosize). One while an urgent byte is under way: a device copies its pointer, which counts from the start of
    /// a segment, into each.
    #[inline]
    fn frame_segments(&self, cx: &Context, mss: u32) -> u32 {
        let frame = cx.config.segmentation_max;
        if frame < 2 * mss || self.snd_up.is_some() {
            return 1;
        }
        let paced = self.bytes_in_a_millisecond(frame) / mss;
        (frame / mss).min(paced.max(cx.config.train_segments))
    }

    /// Bytes of a GSO segment of up to `most` segments: full ones, and a small one behind them when everything ends
    /// with it and it may leave alone (as Linux's tcp_mss_split_point).
    #[inline]
    fn train_bytes(&self, [of_record, unsent, window]: [u32; 3], mss: u32, most: u32) -> u32 {
        let full = (of_record.min(window) / mss).min(most);
        let rest = of_record - full * mss;
        let is_whole = of_record <= window && rest < mss && full < most;
        // A record's last segment is not held back.
        if is_whole && (of_record < unsent || self.should_send(rest, rest, mss)) {
            return of_record;
        }
        full * mss
    }

    /// Bytes that the connection delivers in a millisecond when its window grows, and for a near peer more: `most` for
    /// one that answers at once, half of it for each half millisecond.
    #[inline]
    fn bytes_in_a_millisecond(&self, most: u32) -> u32 {
        let window = u64::from(self.cwnd.max(self.packets_out)) * u64::from(self.mss);
        let percent = if self.cwnd < self.ssthresh / 2 {
            200
        } else {
            120
        };
        let a_millisecond = window * percent * 10 / u64::from(self.rtt.srtt_us.max(1));
        let near = most.checked_shr(self.rtt.min_us >> 9).unwrap_or(0);
        (a_millisecond + u64::from(near)).min(u64::from(most)) as u32
    }

    #[inline]
    fn mss_beside_sack(&self) -> u32 {
        if !self.has_sack || self.reassembly.has_nothing_to_report() {
            return self.mss;
        }
        self.mss.saturating_sub(SACK_BYTES).max(1)
    }

    /// Silly window avoidance and Nagle's algorithm (RFC 9293, 3.8.6.2.1 and 3.7.4).
    #[inline]
    fn should_send(&self, len: u32, unsent: u32, mss: u32) -> bool {
        if len == 0 {
            return false;
        }
        if len == mss || self.push_small {
            return true;
        }
        if len < unsent {
            return len >= self.snd_wnd_max / 2;
        }
        if self.fin_queued {
            return true;
        }
        if self.settings.cork || self.more_follows {
            return false;
        }
        // Minshall's change: only another small segment in flight holds this one back.
        let is_unacked =
            after(self.small_seq, self.snd_una) && !after(self.small_seq, self.snd_nxt);
        let small_in_flight = is_unacked && self.packets_out > 0;
        self.settings.no_delay || !small_in_flight || self.urgent_waits()
    }

    fn urgent_waits(&self) -> bool {
        self.snd_up.is_some_and(|up| after(up, self.snd_nxt))
    }

    /// Nothing is in flight that would bring an acknowledgment: a timer must send what waits.
    fn hold_back(&mut self, cx: &mut Context, window: u32) {
        if self.packets_out > 0 || self.retransmit == RetransmitTimer::Persist {
            return;
        }
        let wait_us = if window == 0 {
            self.rto_us(&cx.config)
        } else {
            HOLD_US
        };
        self.arm(cx, RetransmitTimer::Persist, cx.now_us + wait_us);
    }

    /// How far the congestion window was used, and whether it was the limit: what was true once holds for the
    /// whole window (as Linux's tcp_cwnd_validate).
    #[inline]
    fn note_use(&mut self, is_limited: bool) {
        let (most, end) = self.recovery.most_out;
        let is_more = !self.is_window_limited && self.packets_out > most;
        if is_limited || is_more || !before(self.snd_una, end) {
            self.is_window_limited = is_limited;
            self.recovery.most_out = (self.packets_out, self.snd_nxt);
        }
    }

    /// RFC 5681, 4.1: after an idle time the old window says nothing.
    fn restart_after_idle(&mut self, cx: &Context) {
        let idle_us = cx.now_us.saturating_sub(self.sent_us);
        let rto_us = self.rto_us(&cx.config);
        if self.sent_us > 0 {
            self.control.after_pause(idle_us, cx.now_us);
        }
        let applies = cx.config.slow_start_after_idle && self.sent_us > 0 && idle_us > rto_us;
        if !applies || self.cwnd <= cx.config.initial_window {
            return;
        }
        self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
        let halvings = (idle_us / rto_us.max(1)).min(31) as u32;
        self.cwnd = (self.cwnd >> halvings).max(cx.config.initial_window);
        self.control.restart();
    }

    /// Sends `total` new bytes, in a GSO segment of `len` bytes where they are more than one, with the FIN where
    /// it is due.
    fn send_new<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
        len: usize,
        total: usize,
    ) -> bool {
        let seq = self.snd_nxt;
        let is_train = total > len;
        let end = seq.wrapping_add(total as u32);
        let is_last = total as u32 == self.unsent() && (total as u32) < self.window_left();
        let has_fin = self.fin_queued && is_last;
        // A GSO segment ends with PSH, as on Linux: the receiver need not wait for more to join to it.
        let is_pushed = self.is_pushed(end);
        let pushes = is_pushed || has_fin || is_train;
        let flags = ACK | if pushes && total > 0 { PSH } else { 0 } | if has_fin { FIN } else { 0 };
        let segment = Outgoing {
            seq,
            flags,
            offset: seq.wrapping_sub(self.tx_seq) as usize,
            len: total,
            gso_size: if is_train { len } else { 0 },
            ecn: if self.has_ecn { ip::ECT0 } else { 0 },
        };
        if !self.emit(cx, link, sink, segment) {
            return false;
        }
        if self.is_refused && self.packets_out == 0 {
            // The waits for the device say nothing of the path.
            (self.backoff, self.probes_out, self.trouble_since_us) = (0, 0, 0);
        }
        self.forget_pushes(end);
        // Sent again they may be single segments: only bytes that the application pushed keep the mark.
        let flags = if is_pushed || has_fin {
            flags
        } else {
            flags & !PSH
        };
        let segments = self.record_sent(cx, (seq, end), len as u32, flags);
        self.snd_nxt = end.wrapping_add(u32::from(has_fin));
        self.fin_sent |= has_fin;
        let is_small = match is_train {
            true => total % len > 0,
            false => (total as u32) < self.mss,
        };
        if is_small {
            self.small_seq = self.snd_nxt;
        }
        self.push_small = false;
        self.after_send(cx, true);
        cx.stats.out_segs += segments;
        true
    }

    /// Remembers the segments of `len` bytes, the last one with what is left; how many they are.
    #[inline]
    fn record_sent(&mut self, cx: &mut Context, range: (u32, u32), len: u32, flags: u8) -> u64 {
        let (mut seq, end) = range;
        let mut segments = 0;
        loop {
            let left = end.wrapping_sub(seq);
            let (mut until, mut marks) = (seq.wrapping_add(left.min(len)), 0);
            let is_last = left <= len;
            if is_last && flags & FIN != 0 {
                marks |= sent::FIN;
                until = until.wrapping_add(1);
            }
            if is_last && flags & PSH != 0 {
                marks |= sent::PUSHED;
            }
            if is_last {
                marks |= sent::FRAME_END;
            }
            cx.nodes
                .push(&mut self.sent, (seq, until), cx.now_us, marks);
            self.packets_out += 1;
            self.count_sent();
            segments += 1;
            if is_last {
                return segments;
            }
            seq = until;
        }
    }

    /// Timers and marks after data has left.
    #[inline]
    fn after_send(&mut self, cx: &mut Context, is_new: bool) {
        let pause_us = cx.now_us - self.received_us;
        if is_new && self.received_us > 0 && pause_us < cx.config.delayed_ack_us {
            self.is_interactive = true;
        }
        self.sent_us = cx.now_us;
        match self.retransmit {
            RetransmitTimer::Reordering | RetransmitTimer::Timeout => {}
            _ => self.rearm_after_send(cx),
        }
    }

    /// A probe: one number before what was acknowledged, so that the peer must answer
    /// (RFC 9293, 3.8.4 and 3.8.6.1).
    fn flush_probe<S: TxSink>(&mut self, cx: &mut Context, link: &mut Link, sink: &mut S) -> bool {
        if !self.probe_due {
            return true;
        }
        let seq = self.snd_una.wrapping_sub(1);
        self.probe_due = !self.emit(cx, link, sink, Outgoing::bare(seq));
        !self.probe_due
    }

    #[inline]
    fn flush_ack<S: TxSink>(&mut self, cx: &mut Context, link: &mut Link, sink: &mut S) -> bool {
        if !self.ack_pending {
            return true;
        }
        // A window that was overrun is shut: as on Linux the peer learns that when something was read, or when the
        // acknowledgment can wait no longer.
        let full = self.is_ack_overdue(&cx.config) && !self.is_overrun;
        if self.ack_due || full || !self.reassembly.is_empty() {
            return self.send_ack(cx, link, sink);
        }
        let quick = self.quick_acks > 0 && !self.is_interactive && !self.is_overrun;
        if self.ack_soon || quick {
            if self.ack_has_waited || !cx.config.answers_follow {
                return self.send_ack(cx, link, sink);
            }
            if !self.ack_waits {
                self.ack_waits = true;
                // The end of a handshake only for one round: a listener counts who has come by it.
                match self.rcv_nxt == self.irs.wrapping_add(1) {
                    true => cx.waiting.push_front((self.index, 0)),
                    false => cx.waiting.push_back((self.index, cx.now_us)),
                }
            }
            return true;
        }
        if self.delayed_ack_at_us == 0 {
            self.delayed_ack_at_us = cx.now_us + cx.config.delayed_ack_us;
            cx.wheel.arm(self.index, self.delayed_ack_at_us);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_segment_of_two_gigabytes_ago_holds_nothing_back() {
        let conn = |small_seq| Conn {
            snd_una: 1,
            snd_nxt: 1_001,
            packets_out: 1,
            small_seq,
            ..Conn::default()
        };
        assert!(!conn(1_001).should_send(10, 10, 1_000));
        assert!(conn(0x7000_0000).should_send(10, 10, 1_000));
    }
}
