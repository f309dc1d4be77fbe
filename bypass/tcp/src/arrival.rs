//! Frames in: taken apart, checked, and handed to whose they are.

use crate::conn::Conn;
use crate::demux::Entry;
use crate::engine::Engine;
use crate::input::Reply;
use crate::option::Settings;
use crate::route::Hop;
use crate::segment::send_bare;
use crate::sent::NONE;
use crate::seq::{after, before};
use crate::sink::{Rx, TxMeta, TxSink};
use crate::timewait::Verdict;
use crate::wire::ip::Refusal;
use crate::wire::tcp::{self, OptionsToSend, Segment, ACK, RST, SYN};
use crate::wire::{ethernet, icmp, ip};
use core::net::SocketAddr;

/// Frames that are taken apart before the first of them is acted on, so that the memory of their
/// connections is on its way while the others are looked at.
const BURST: usize = 32;

impl Engine {
    /// Takes received frames. Answers that cannot wait leave at once, the rest with
    /// [`Engine::end_batch`].
    pub fn rx_burst<S: TxSink>(&mut self, now_us: u64, frames: &[Rx<'_>], sink: &mut S) {
        self.cx.now_us = self.cx.now_us.max(now_us);
        // One alone needs no room for others.
        if let [frame] = frames {
            if let Some(segment) = self.take_frame(frame, sink) {
                let hash = self.demux.hash(&segment.flow);
                self.take_segment(&segment, hash, frame.bytes, sink);
            }
            return;
        }
        for burst in frames.chunks(BURST) {
            self.take_burst(burst, sink);
        }
    }

    fn take_burst<S: TxSink>(&mut self, frames: &[Rx<'_>], sink: &mut S) {
        let mut segments: [Option<(Segment, u64)>; BURST] = [const { None }; BURST];
        for (frame, place) in frames.iter().zip(&mut segments) {
            if let Some(segment) = self.take_frame(frame, sink) {
                let hash = self.demux.hash(&segment.flow);
                *place = Some((segment, hash));
            }
        }
        if frames.len() > 1 {
            self.touch(&segments);
        }
        for (frame, segment) in frames.iter().zip(&segments) {
            if let Some((segment, hash)) = segment {
                self.take_segment(segment, *hash, frame.bytes, sink);
            }
        }
    }

    /// Reads what each segment will need once: the loads overlap, which those of the real work would not.
    #[inline]
    fn touch(&self, segments: &[Option<(Segment, u64)>; BURST]) {
        let mut sum = 0;
        let mut heads = [NONE; BURST];
        for ((segment, hash), head) in segments.iter().flatten().zip(&mut heads) {
            if let Some(Entry::Connection(index)) = self.find(&segment.flow, *hash) {
                let conn = &self.conns[index];
                sum ^= conn.touch() ^ self.cx.wheel.touch(index);
                *head = conn.sent.head;
            }
        }
        for head in heads.into_iter().filter(|head| *head != NONE) {
            sum ^= self.cx.nodes.get(head).end;
        }
        core::hint::black_box(sum);
    }

    /// Everything below TCP. A segment for us is answered.
    #[inline]
    fn take_frame<'a, S: TxSink>(&mut self, rx: &Rx<'a>, sink: &mut S) -> Option<Segment<'a>> {
        let frame = ethernet::parse(rx.bytes)?;
        let parsed = match frame.ethertype {
            ethernet::IPV4 => ip::parse_v4(frame.payload, false),
            ethernet::IPV6 => ip::parse_v6(frame.payload),
            ethernet::ARP => {
                let (link, mut out) = self.out(sink);
                link.on_arp(&mut out, frame.payload);
                sink.pass(rx.bytes);
                return None;
            }
            _ => {
                sink.pass(rx.bytes);
                return None;
            }
        };
        let packet = match parsed {
            Ok(packet) => packet,
            Err(Refusal::Malformed) => {
                self.cx.stats.in_errs += 1;
                return None;
            }
            Err(Refusal::Fragment) => {
                sink.pass(rx.bytes);
                return None;
            }
        };
        if packet.protocol != ip::TCP {
            self.take_message(&packet, rx.bytes, sink);
            return None;
        }
        if !self.link.routes.is_local(packet.destination) {
            sink.pass(rx.bytes);
            return None;
        }
        self.cx.stats.in_segs += 1;
        // RFC 9293, 3.9.2.3: nothing that was not sent to or by one host alone. A segment that claims to come from this
        // host would pass for a neighbour that may be trusted; so would IPv4 inside IPv6.
        let is_mapped = frame.ethertype == ethernet::IPV6 && packet.source.is_v4();
        // Under promiscuous mode frames of other hosts come too.
        let is_personal = self.cx.is_own_station(frame.destination) && !is_mapped;
        let segment = tcp::parse(&packet, rx.sum)
            .filter(|_| is_personal && self.link.routes.is_possible_source(packet.source));
        if segment.is_none() {
            self.cx.stats.in_errs += 1;
        }
        segment
    }

    #[inline]
    fn take_segment<S: TxSink>(&mut self, seg: &Segment, hash: u64, frame: &[u8], sink: &mut S) {
        match self.find(&seg.flow, hash) {
            Some(Entry::Connection(index)) => self.on_conn_segment(index, seg, sink),
            Some(Entry::HalfOpen(index)) => self.on_half_open_segment(index, seg, sink),
            Some(Entry::TimeWait(index)) => self.on_time_wait_segment(index, seg, frame, sink),
            None => self.on_unknown_segment(seg, None, frame, sink),
        }
    }

    #[inline]
    pub(crate) fn on_conn_segment<S: TxSink>(&mut self, index: u32, seg: &Segment, sink: &mut S) {
        let Engine {
            cx, conns, link, ..
        } = self;
        let conn = &mut conns[index];
        match conn.on_segment(cx, seg) {
            Reply::None => {}
            Reply::Ack => {
                if !conn.send_ack(cx, link, sink) {
                    conn.queue_output(cx);
                }
            }
            Reply::Reset => self.send_reset_for(seg, sink),
        }
        self.settle(index);
    }

    fn on_time_wait_segment<S: TxSink>(
        &mut self,
        index: u32,
        seg: &Segment,
        frame: &[u8],
        sink: &mut S,
    ) {
        match self.time_waits.on_segment(index, seg, self.cx.now_us) {
            Verdict::Drop => {}
            Verdict::End => self.remove_time_wait(index),
            Verdict::Ack => self.acknowledge_time_wait(index, sink),
            Verdict::Reopen(iss) => self.reopen_time_wait(index, (seg, iss), frame, sink),
        }
    }

    /// A SYN that cannot be old ends TIME_WAIT where it leads to something new.
    fn reopen_time_wait<S: TxSink>(
        &mut self,
        index: u32,
        (seg, iss): (&Segment, u32),
        frame: &[u8],
        sink: &mut S,
    ) {
        let flow = seg.flow;
        let Some(listener) = self.listeners.find(flow.local, flow.local_port()) else {
            if self.time_waits.answer(index, self.cx.now_us) == Verdict::Ack {
                self.acknowledge_time_wait(index, sink);
            }
            return;
        };
        let listener = &self.listeners.slab[listener];
        if listener.is_full() {
            self.cx.stats.listen_overflows += 1;
            self.cx.stats.listen_drops += 1;
        } else if self.half_opens.slab.is_full() {
            self.cx.stats.listen_drops += 1;
        } else {
            self.cx.stats.time_wait_recycled += 1;
            self.remove_time_wait(index);
            self.on_unknown_segment(seg, Some(iss), frame, sink);
        }
    }

    fn acknowledge_time_wait<S: TxSink>(&mut self, index: u32, sink: &mut S) {
        let entry = *self.time_waits.get(index);
        let clock_ms = (self.cx.now_us / 1_000) as u32;
        let timestamps = (clock_ms.wrapping_add(entry.ts_offset), entry.ts_recent);
        let header = tcp::Header {
            flow: entry.flow,
            seq: entry.snd_nxt,
            ack: entry.rcv_nxt,
            flags: ACK,
            window: entry.window,
            urgent: 0,
        };
        let timestamps = entry.has_timestamps.then_some(timestamps);
        let options = OptionsToSend {
            timestamps,
            ..OptionsToSend::default()
        };
        self.send_alone(&header, (&options, &Settings::default()), sink);
    }

    /// Sends a segment that belongs to no connection, with the traffic class and hop limit of these settings.
    pub(crate) fn send_alone<S: TxSink>(
        &mut self,
        header: &tcp::Header,
        options: (&OptionsToSend, &Settings),
        sink: &mut S,
    ) {
        if !self.link.routes.is_local(header.flow.local) {
            return;
        }
        let label = self.numbers.flow_label(&header.flow);
        let (link, mut out) = self.out(sink);
        send_bare(
            &mut out,
            link,
            &mut Hop::default(),
            (header, label),
            options,
        );
    }

    /// Nobody has this flow (RFC 9293, 3.10.7.1 and 3.10.7.2).
    fn on_unknown_segment<S: TxSink>(
        &mut self,
        seg: &Segment,
        iss: Option<u32>,
        frame: &[u8],
        sink: &mut S,
    ) {
        let listener = self.listeners.find(seg.flow.local, seg.flow.local_port());
        match listener {
            Some(_) if seg.has(RST) => {}
            Some(listener) if seg.has(ACK) => {
                if seg.has(SYN) || !self.on_cookie(listener, seg, sink) {
                    self.send_reset_for(seg, sink);
                }
            }
            Some(listener) if seg.has(SYN) => self.on_syn(listener, seg, iss, sink),
            Some(_) => {}
            // A port of ours at another address: a caller that hands such segments over asks no other engine.
            None if self.cx.config.is_sole_host || self.listeners.has(seg.flow.local_port()) => {
                self.send_reset_for(seg, sink);
            }
            None => {
                let at = SocketAddr::new(seg.flow.local.into(), seg.flow.local_port());
                match sink.is_claimed(at, seg.has(SYN) && !seg.has(ACK)) {
                    true => self.send_reset_for(seg, sink),
                    false => sink.pass(frame),
                }
            }
        }
    }

    /// RFC 9293, 3.10.7.1: what the sender will take for an answer. A reset is never answered.
    pub(crate) fn send_reset_for<S: TxSink>(&mut self, seg: &Segment, sink: &mut S) {
        if seg.has(RST) {
            return;
        }
        self.cx.stats.out_rsts += 1;
        let (seq, ack, flags) = match seg.has(ACK) {
            true => (seg.ack, 0, RST),
            false => (0, seg.end(), RST | ACK),
        };
        let header = tcp::Header {
            flow: seg.flow,
            seq,
            ack,
            flags,
            window: 0,
            urgent: 0,
        };
        self.send_alone(
            &header,
            (&OptionsToSend::default(), &Settings::default()),
            sink,
        );
    }

    /// A packet that is not TCP.
    fn take_message<S: TxSink>(&mut self, packet: &ip::Packet<'_>, frame: &[u8], sink: &mut S) {
        let message = match packet.protocol {
            ip::ICMP if packet.destination.is_v4() => icmp::parse_v4(packet.payload),
            ip::ICMPV6 if !packet.destination.is_v4() => icmp::parse_v6(packet),
            _ => None,
        };
        match message {
            Some(icmp::Message::Error { flow, seq, kind }) => self.on_icmp_error(&flow, seq, kind),
            Some(icmp::Message::EchoRequest(body)) if self.cx.config.is_sole_host => {
                self.echo(packet, body, sink);
            }
            Some(message) => {
                let (link, mut out) = self.out(sink);
                link.on_discovery(&mut out, packet, message);
            }
            None => {}
        }
        sink.pass(frame);
    }

    fn echo<S: TxSink>(&mut self, packet: &ip::Packet<'_>, body: &[u8], sink: &mut S) {
        if !self.link.routes.is_local(packet.destination) || packet.source.is_multicast() {
            return;
        }
        let (source, destination) = (packet.destination, packet.source);
        let header = ip::Header {
            source,
            destination,
            protocol: packet.protocol,
            traffic_class: 0,
            hops: 64,
            flow_label: 0,
            id: 0,
            payload_len: body.len() + 4,
        };
        let at = ethernet::HEADER + header.len();
        let meta = TxMeta::whole(header.len() + header.payload_len);
        let (link, mut out) = self.out(sink);
        link.send(&mut out, &mut Hop::default(), destination, meta, |frame| {
            header.emit(&mut frame[ethernet::HEADER..]);
            icmp::emit_echo_reply(&mut frame[at..], body, source, destination);
        });
    }

    /// An error about a packet of ours counts only when the packet may be in flight (RFC 5927, 4).
    fn on_icmp_error(&mut self, flow: &tcp::Flow, seq: u32, kind: icmp::ErrorKind) {
        let hash = self.demux.hash(flow);
        let Some(Entry::Connection(index)) = self.find(flow, hash) else {
            self.cx.stats.icmp_out_of_window += 1;
            return;
        };
        let conn = &mut self.conns[index];
        if before(seq, conn.snd_una)
            || after(seq, conn.snd_nxt)
            || seq == conn.snd_nxt && before(conn.snd_una, conn.snd_nxt)
        {
            self.cx.stats.icmp_out_of_window += 1;
            return;
        }
        match kind {
            icmp::ErrorKind::TooBig(mtu) => self.on_too_big(index, mtu),
            icmp::ErrorKind::Undelivered(error) => conn.on_unreachable(&mut self.cx, error),
        }
        self.settle(index);
    }

    /// RFC 1191, 6 and RFC 8201: send what was too big again in smaller segments.
    fn on_too_big(&mut self, index: u32, mtu: u32) {
        let Engine {
            cx, conns, link, ..
        } = self;
        let conn: &mut Conn = &mut conns[index];
        let remote = conn.flow.remote;
        let Some(mtu) = link.routes.lower_mtu(remote, mtu, conn.path_mtu, cx.now_us) else {
            return;
        };
        cx.stats.mtu_reductions += 1;
        conn.set_path_mtu(mtu);
        conn.resend_too_big(cx);
    }
}
