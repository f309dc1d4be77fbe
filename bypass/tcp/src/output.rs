//! What leaves: SYNs, data, FIN, retransmissions, probes, acknowledgments.

use crate::conn::{Conn, Context, RetransmitTimer, State};
use crate::loss::Phase;
use crate::neighbour::{Link, Out, Sent};
use crate::sent::{self, LOST, NONE, RETRANSMITTED, SACKED};
use crate::seq::{after, before, distance, later};
use crate::sink::{TxMeta, TxSink};
use crate::wire::tcp::{self, OptionsToSend, ACK, CWR, ECE, FIN, PSH, SYN, URG};
use crate::wire::{ethernet, ip};

/// How long a corked or silly small segment is held back (Linux's, RFC 9293, 3.8.6.2.1).
const HOLD_US: u64 = 200_000;
/// Hop limit of our packets.
const HOPS: u8 = 64;
/// SACK blocks that fit beside timestamps, and without them.
const SACK_BLOCKS_WITH_TIMESTAMPS: usize = 3;

/// One segment about to leave.
#[derive(Clone, Copy)]
struct Outgoing {
    seq: u32,
    flags: u8,
    /// Where its bytes begin in the send ring, and how many there are.
    offset: usize,
    len: usize,
    /// The device cuts it into segments of this payload; zero for no cutting.
    gso_size: usize,
    ecn: u8,
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
        let done = self.flush_retransmissions(cx, link, sink)
            && self.flush_loss_probe(cx, link, sink)
            && self.flush_new(cx, link, sink)
            && self.flush_probe(cx, link, sink);
        done && self.flush_ack(cx, link, sink)
    }

    fn flush_syn<S: TxSink>(&mut self, cx: &mut Context, link: &mut Link, sink: &mut S) -> bool {
        if !self.syn_due {
            return true;
        }
        let is_answer = self.state == State::SynReceived;
        let mut flags = if is_answer { SYN | ACK } else { SYN };
        if self.has_ecn {
            flags |= if is_answer { ECE } else { ECE | CWR };
        }
        let options = self.syn_options(cx, is_answer);
        let header = tcp::Header {
            flow: self.flow,
            seq: self.iss,
            ack: if is_answer { self.rcv_nxt } else { 0 },
            flags,
            window: self.syn_window(cx).min(0xffff) as u16,
            urgent: 0,
        };
        let (now_us, config) = (cx.now_us, &cx.config);
        let mut out = Out {
            sink,
            now_us,
            config,
            stats: &mut cx.stats,
        };
        let mut hop = self.hop;
        let sent = send_bare(&mut out, link, &mut hop, &header, &options);
        self.hop = hop;
        match sent {
            Sent::Full => return false,
            Sent::NoWay(error) => self.on_unreachable(cx, error),
            Sent::Done => {
                self.syn_due = false;
                let rto_us = self.rto_us(&cx.config);
                self.arm(cx, RetransmitTimer::Timeout, cx.now_us + rto_us);
                cx.stats.out_segs += 1;
            }
        }
        true
    }

    fn syn_options(&self, cx: &Context, is_answer: bool) -> OptionsToSend {
        let config = &cx.config;
        let offer = |offered: bool, accepted: bool| if is_answer { accepted } else { offered };
        let timestamps = offer(config.timestamps, self.has_timestamps);
        let scales = offer(
            config.window_scaling,
            self.rcv_scale > 0 || self.snd_scale > 0,
        );
        OptionsToSend {
            mss: Some(self.advertised_mss(cx) as u16),
            sack_permitted: offer(config.sack, self.has_sack),
            timestamps: timestamps.then(|| (self.timestamp(cx.now_us), self.ts_recent)),
            window_scale: scales.then_some(self.rcv_scale),
            ..OptionsToSend::default()
        }
    }

    /// The MSS that we state: what the link carries without headers (RFC 6691).
    pub fn advertised_mss(&self, cx: &Context) -> u32 {
        let headers = ip::header_len(self.flow.remote) + tcp::HEADER;
        let mss = cx.config.mtu.saturating_sub(headers as u32).min(0xffff);
        match self.settings.segment_max {
            0 => mss,
            own => mss.min(own),
        }
    }

    /// The first window: whole segments of at most 64 KiB, as Linux has it.
    pub fn syn_window(&self, cx: &Context) -> u32 {
        let options = if self.has_timestamps {
            tcp::TIMESTAMPS_LEN as u32
        } else {
            0
        };
        let mss = self.advertised_mss(cx).saturating_sub(options).max(1);
        let limit = self.rcv_limit.min(0xffff);
        if limit < mss {
            limit
        } else {
            limit / mss * mss
        }
    }

    /// Sends again what is taken for lost, as far as the window allows.
    fn flush_retransmissions<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
    ) -> bool {
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
            self.recovery.resend_from = Some((node.seq, index));
            if node.is(LOST) && !node.is(RETRANSMITTED) {
                if !self.resend(cx, link, sink, index) {
                    return false;
                }
                if self.recovery.phase == Phase::Loss {
                    cx.stats.slow_start_retrans += 1;
                } else {
                    cx.stats.fast_retrans += 1;
                }
            }
            index = cx.nodes.get(index).next;
        }
        true
    }

    /// Sends a segment again; one larger than the path now carries is cut first.
    fn resend<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
        index: u32,
    ) -> bool {
        let node = *cx.nodes.get(index);
        let most = self.mss.max(1);
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
        while index != NONE {
            let node = *cx.nodes.get(index);
            let len = node.end.wrapping_sub(node.seq) - u32::from(node.is(sent::FIN));
            if len > self.mss && !node.is(SACKED) {
                self.mark_lost(cx, index);
            }
            index = node.next;
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
        if self.packets_out == 0 {
            self.loss_probe_due = false;
            return true;
        }
        let end_before = self.snd_nxt;
        let len = self.unsent().min(self.mss).min(self.window_left());
        let is_new = len > 0;
        let sent = if is_new {
            self.send_new(cx, link, sink, len as usize, 1)
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

    /// What the peer's window still takes.
    #[inline]
    fn window_left(&self) -> u32 {
        distance(self.snd_nxt, self.snd_una.wrapping_add(self.snd_wnd))
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
        self.is_window_limited = false;
        loop {
            let unsent = self.unsent();
            if unsent == 0 {
                return !self.fin_queued || self.fin_sent || self.send_new(cx, link, sink, 0, 1);
            }
            let room = self.cwnd.saturating_sub(self.in_flight());
            if room == 0 {
                self.is_window_limited = true;
                return true;
            }
            let mss = self.mss_beside_sack();
            let window = self.window_left();
            let len = unsent.min(mss).min(window);
            if !self.should_send(len, unsent, mss) {
                self.hold_back(cx, window);
                return true;
            }
            let segments = self.train_len(cx, [unsent, window, mss, room]);
            if !self.send_new(cx, link, sink, len as usize, segments) {
                return false;
            }
        }
    }

    /// How many full segments the device may cut from one frame.
    #[inline]
    fn train_len(&self, cx: &Context, [unsent, window, mss, room]: [u32; 4]) -> u32 {
        let most = cx.config.segmentation_max / mss.max(1);
        if most < 2 || unsent < 2 * mss {
            return 1;
        }
        (unsent.min(window) / mss).min(room).min(most).max(1)
    }

    #[inline]
    fn mss_beside_sack(&self) -> u32 {
        if self.reassembly.has_nothing_to_report() {
            return self.mss;
        }
        self.mss
            .saturating_sub(4 + 8 * SACK_BLOCKS_WITH_TIMESTAMPS as u32)
            .max(1)
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
        let small_in_flight = after(self.small_seq, self.snd_una) && self.packets_out > 0;
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

    #[inline]
    fn note_most_out(&mut self) {
        let (most, end) = self.recovery.most_out;
        if self.packets_out > most || !before(self.snd_una, end) {
            self.recovery.most_out = (self.packets_out, self.snd_nxt);
        }
    }

    /// RFC 5681, 4.1: after an idle time the old window says nothing.
    fn restart_after_idle(&mut self, cx: &Context) {
        let idle_us = cx.now_us.saturating_sub(self.sent_us);
        let rto_us = self.rto_us(&cx.config);
        let applies = cx.config.slow_start_after_idle && self.sent_us > 0 && idle_us > rto_us;
        if !applies || self.cwnd <= cx.config.initial_window {
            return;
        }
        self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
        let halvings = (idle_us / rto_us.max(1)).min(31) as u32;
        self.cwnd = (self.cwnd >> halvings).max(cx.config.initial_window);
        self.control.restart();
    }

    /// Sends `len` new bytes, or a train of `segments` of `len` bytes, with the FIN where it is due.
    fn send_new<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
        len: usize,
        segments: u32,
    ) -> bool {
        let seq = self.snd_nxt;
        let total = len * segments as usize;
        let end = seq.wrapping_add(total as u32);
        let has_fin = self.fin_queued && total as u32 == self.unsent();
        // A train ends with PSH, as on Linux: the receiver need not wait for more to join to it.
        let pushes = !before(end, self.push_seq) || has_fin || segments > 1;
        let flags = ACK | if pushes && total > 0 { PSH } else { 0 } | if has_fin { FIN } else { 0 };
        let segment = Outgoing {
            seq,
            flags,
            offset: seq.wrapping_sub(self.tx_seq) as usize,
            len: total,
            gso_size: if segments > 1 { len } else { 0 },
            ecn: if self.has_ecn { ip::ECT0 } else { 0 },
        };
        if !self.emit(cx, link, sink, segment) {
            return false;
        }
        self.record_sent(cx, seq, len as u32, segments, flags);
        self.snd_nxt = end.wrapping_add(u32::from(has_fin));
        self.fin_sent |= has_fin;
        self.note_most_out();
        if (total as u32) < self.mss {
            self.small_seq = self.snd_nxt;
        }
        self.push_small = false;
        self.after_send(cx, true);
        cx.stats.out_segs += u64::from(segments);
        true
    }

    #[inline]
    fn record_sent(&mut self, cx: &mut Context, mut seq: u32, len: u32, segments: u32, flags: u8) {
        for number in 0..segments {
            let mut marks = 0;
            if number + 1 == segments {
                marks |= if flags & FIN != 0 { sent::FIN } else { 0 };
                marks |= if flags & PSH != 0 { sent::PUSHED } else { 0 };
            }
            let end = seq.wrapping_add(len + u32::from(marks & sent::FIN != 0));
            cx.nodes.push(&mut self.sent, (seq, end), cx.now_us, marks);
            self.packets_out += 1;
            self.count_sent();
            seq = end;
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
            RetransmitTimer::Reordering => {}
            RetransmitTimer::Timeout if !is_new => {}
            RetransmitTimer::Timeout if self.recovery.phase >= Phase::Recovery => {}
            _ => self.rearm_retransmit(cx),
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
        let quick = self.quick_acks > 0 && !self.is_interactive;
        let full = self.is_ack_overdue(&cx.config);
        if self.ack_due || quick || full || !self.reassembly.is_empty() {
            return self.send_ack(cx, link, sink);
        }
        if self.delayed_ack_at_us == 0 {
            self.delayed_ack_at_us = cx.now_us + cx.config.delayed_ack_us;
            cx.wheel.arm(self.index, self.delayed_ack_at_us);
        }
        true
    }

    /// A pure acknowledgment.
    pub fn send_ack<S: TxSink>(&mut self, cx: &mut Context, link: &mut Link, sink: &mut S) -> bool {
        let seq = self.snd_nxt;
        if self.state == State::SynSent {
            return true;
        }
        let sent = self.emit(cx, link, sink, Outgoing::bare(seq));
        if !sent {
            self.ack_pending = true;
            self.ack_due = true;
        }
        sent
    }

    /// A reset that ends this connection for the peer.
    pub fn send_reset<S: TxSink>(&mut self, cx: &mut Context, link: &mut Link, sink: &mut S) {
        let segment = Outgoing {
            flags: tcp::RST | ACK,
            ..Outgoing::bare(self.snd_nxt)
        };
        cx.stats.out_rsts += 1;
        self.emit(cx, link, sink, segment);
    }

    #[inline]
    fn options(&mut self, now_us: u64) -> OptionsToSend {
        let mut options = OptionsToSend::default();
        if self.has_timestamps {
            options.timestamps = Some((self.timestamp(now_us), self.ts_recent));
        }
        if self.has_sack && !self.reassembly.has_nothing_to_report() {
            let room = SACK_BLOCKS_WITH_TIMESTAMPS + usize::from(!self.has_timestamps);
            (options.sack, options.sack_count) = self.reassembly.blocks(room);
        }
        options
    }

    /// Writes one frame. False when the device has no room.
    #[inline]
    fn emit<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
        segment: Outgoing,
    ) -> bool {
        let options = self.options(cx.now_us);
        let header = tcp::Header {
            flow: self.flow,
            seq: segment.seq,
            ack: self.rcv_nxt,
            flags: segment.flags | self.extra_flags(&segment, cx),
            window: self.advertise_window(),
            urgent: self.urgent_pointer(&segment),
        };
        let tcp_len = tcp::HEADER + options.len() + segment.len;
        let packet = ip::Header {
            source: self.flow.local,
            destination: self.flow.remote,
            protocol: ip::TCP,
            ecn: self.settings.traffic_class & !3 | segment.ecn,
            hops: HOPS,
            id: cx.stats.out_segs as u16,
            payload_len: tcp_len,
        };
        let tcp_at = ethernet::HEADER + packet.len();
        let meta = TxMeta {
            ip_len: packet.len() + tcp_len,
            header_len: tcp_at + tcp_len - segment.len,
            tcp_at,
            gso_size: segment.gso_size,
            partial_checksum: cx.config.checksum_offload || segment.gso_size > 0,
        };
        let mut hop = self.hop;
        let bytes = self.tx.slices(segment.offset, segment.len);
        let mut out = Out {
            sink,
            now_us: cx.now_us,
            config: &cx.config,
            stats: &mut cx.stats,
        };
        let sent = link.send(&mut out, &mut hop, self.flow.remote, meta, |frame| {
            write_frame(frame, &packet, &header, &options, bytes, &meta);
        });
        self.hop = hop;
        match sent {
            Sent::Full => return false,
            Sent::NoWay(error) => self.soft_error = Some(error),
            Sent::Done => {}
        }
        self.acknowledged_peer(segment.flags);
        true
    }

    #[inline]
    fn extra_flags(&mut self, segment: &Outgoing, cx: &mut Context) -> u8 {
        let mut flags = 0;
        if self.has_ecn && self.ece_wanted {
            cx.stats.ecn_echoes += 1;
            flags |= ECE;
        }
        if self.cwr_wanted && segment.len > 0 && segment.ecn != 0 {
            self.cwr_wanted = false;
            flags |= CWR;
        }
        if self.snd_up.is_some_and(|up| after(up, segment.seq)) {
            flags |= URG;
        }
        flags
    }

    fn urgent_pointer(&self, segment: &Outgoing) -> u16 {
        match self.snd_up {
            Some(up) if after(up, segment.seq) => up.wrapping_sub(segment.seq).min(0xffff) as u16,
            _ => 0,
        }
    }

    /// Every segment acknowledges: what was owed is paid.
    #[inline]
    fn acknowledged_peer(&mut self, flags: u8) {
        if flags & ACK != 0 {
            self.rcv_acked = later(self.rcv_acked, self.rcv_nxt);
            self.ack_pending = false;
            self.ack_due = false;
            self.delayed_ack_at_us = 0;
            self.quick_acks = self.quick_acks.saturating_sub(1);
        }
    }
}

impl Outgoing {
    /// A segment without bytes.
    fn bare(seq: u32) -> Outgoing {
        Outgoing {
            seq,
            flags: ACK,
            offset: 0,
            len: 0,
            gso_size: 0,
            ecn: 0,
        }
    }
}

#[inline]
fn write_frame(
    frame: &mut [u8],
    packet: &ip::Header,
    header: &tcp::Header,
    options: &OptionsToSend,
    bytes: (&[u8], &[u8]),
    meta: &TxMeta,
) {
    packet.emit(&mut frame[ethernet::HEADER..]);
    let segment = &mut frame[meta.tcp_at..];
    header.emit(segment, options);
    let at = meta.header_len - meta.tcp_at;
    let middle = at + bytes.0.len();
    segment[at..middle].copy_from_slice(bytes.0);
    segment[middle..].copy_from_slice(bytes.1);
    let mut sum = ip::pseudo_header(
        packet.source,
        packet.destination,
        ip::TCP,
        packet.payload_len,
    );
    let field = if meta.partial_checksum {
        sum.partial()
    } else {
        sum.add(segment);
        sum.finish()
    };
    segment[16..18].copy_from_slice(&field);
}

/// Sends a segment without bytes that belongs to no connection, or not yet to one.
pub fn send_bare<S: TxSink>(
    out: &mut Out<'_, S>,
    link: &mut Link,
    hop: &mut crate::route::Hop,
    header: &tcp::Header,
    options: &OptionsToSend,
) -> Sent {
    let flow = header.flow;
    let tcp_len = tcp::HEADER + options.len();
    let packet = ip::Header {
        source: flow.local,
        destination: flow.remote,
        protocol: ip::TCP,
        ecn: 0,
        hops: HOPS,
        id: 0,
        payload_len: tcp_len,
    };
    let tcp_at = ethernet::HEADER + packet.len();
    let meta = TxMeta {
        ip_len: packet.len() + tcp_len,
        header_len: tcp_at + tcp_len,
        tcp_at,
        gso_size: 0,
        partial_checksum: false,
    };
    link.send(out, hop, flow.remote, meta, |frame| {
        write_frame(frame, &packet, header, options, (&[], &[]), &meta);
    })
}
