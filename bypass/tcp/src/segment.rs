//! One segment: its header, options and bytes, out to the device.

use crate::conn::{Conn, Context, Full, State};
use crate::neighbour::{Link, Out, Sent};
use crate::option::Settings;
use crate::seq::{after, distance, later};
use crate::sink::{put_payload, TxMeta, TxSink};
use crate::wire::checksum::Checksum;
use crate::wire::tcp::{self, OptionsToSend, ACK, CWR, ECE, URG};
use crate::wire::{ethernet, ip};

/// Place of the checksum in a TCP header.
const CHECKSUM_AT: core::ops::Range<usize> = 16..18;
/// SACK blocks that fit besides timestamps; without these one more fits.
const SACK_BLOCKS_WITH_TIMESTAMPS: usize = 3;
/// Payload that new data leaves to selective acknowledgments.
pub const SACK_BYTES: u32 = 4 + 8 * SACK_BLOCKS_WITH_TIMESTAMPS as u32;

/// One segment about to leave.
#[derive(Clone, Copy)]
pub struct Outgoing {
    /// Sequence number.
    pub seq: u32,
    /// Its flags, without the flags that the state of the connection adds.
    pub flags: u8,
    /// Where its bytes begin in the send ring, and how many there are.
    pub offset: usize,
    /// See `offset`.
    pub len: usize,
    /// The device cuts it into segments of this payload; zero for no cutting.
    pub gso_size: usize,
    /// Bits of the IP header.
    pub ecn: u8,
}

impl Conn {
    /// The number of a segment without bytes: the next, or the end of a window that the peer has shut before it,
    /// beyond which it would drop the segment (Linux's tcp_acceptable_seq). A remainder that the scale cuts off does not count.
    fn acceptable_seq(&self) -> u32 {
        let edge = self.snd_una.wrapping_add(self.snd_wnd);
        let beyond = distance(edge, self.snd_nxt).saturating_sub(u32::from(self.fin_sent));
        let is_unknown = self.snd_wnd_max == 0;
        if is_unknown || beyond < 1 << self.snd_scale {
            self.snd_nxt
        } else {
            edge
        }
    }

    /// A pure acknowledgment.
    pub fn send_ack<S: TxSink>(&mut self, cx: &mut Context, link: &mut Link, sink: &mut S) -> bool {
        if self.state == State::SynSent {
            return true;
        }
        let seq = self.acceptable_seq();
        let sent = self.emit(cx, link, sink, Outgoing::bare(seq));
        if !sent {
            self.ack_pending = true;
            self.ack_due = true;
        }
        sent
    }

    /// A reset that ends this connection for the peer. False when the device has no room.
    pub fn send_reset<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
    ) -> bool {
        let segment = Outgoing {
            flags: tcp::RST | ACK,
            ..Outgoing::bare(self.acceptable_seq())
        };
        let sent = self.emit(cx, link, sink, segment);
        cx.stats.out_rsts += u64::from(sent);
        sent
    }

    /// The options of a segment of `len` bytes: of the selective acknowledgments as many as fit besides.
    #[inline]
    fn options(&mut self, now_us: u64, len: u32) -> OptionsToSend {
        let mut options = OptionsToSend::default();
        if self.has_timestamps {
            options.timestamps = Some((self.timestamp(now_us), self.ts_recent));
        }
        if self.has_sack && !self.reassembly.has_nothing_to_report() {
            let mut room = SACK_BLOCKS_WITH_TIMESTAMPS + usize::from(!self.has_timestamps);
            if len > 0 {
                room = room.min(self.mss.saturating_sub(len + 4) as usize / 8);
            }
            (options.sack, options.sack_count) = self.reassembly.blocks(room);
        }
        options
    }

    /// Writes one frame. False when the device has no room.
    #[inline]
    pub fn emit<S: TxSink>(
        &mut self,
        cx: &mut Context,
        link: &mut Link,
        sink: &mut S,
        segment: Outgoing,
    ) -> bool {
        let is_behind = self.is_behind_gso(&segment);
        let is_in_gso_queue = is_behind || segment.gso_size > 0;
        if is_in_gso_queue && cx.full == Full::Gso {
            return false;
        }
        let edge = self.rcv_edge;
        let len = match segment.gso_size {
            0 => segment.len,
            cut => cut,
        };
        let options = self.options(cx.now_us, len as u32);
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
            traffic_class: self.settings.traffic_class & !3 | segment.ecn,
            hops: self.settings.hops_or(self.path_hops),
            flow_label: self.flow_label,
            id: 0,
            payload_len: tcp_len,
        };
        let tcp_at = ethernet::HEADER + packet.len();
        let meta = TxMeta {
            ip_len: packet.len() + tcp_len,
            header_len: tcp_at + tcp_len - segment.len,
            tcp_at,
            gso_size: segment.gso_size,
            partial_checksum: cx.config.checksum_offload || segment.gso_size > 0,
            in_order: match segment.gso_size {
                0 => is_behind,
                _ => self.single_us == cx.now_us,
            },
        };
        let mut hop = self.hop;
        let bytes = self.tx.slices(segment.offset, segment.len);
        let mut out = Out {
            sink,
            now_us: cx.now_us,
            config: &cx.config,
            stats: &mut cx.stats,
        };
        let to = self.flow.remote;
        let sent = if segment.gso_size > 0 {
            let train = (meta, [bytes.0, bytes.1]);
            link.send_gso(&mut out, &mut hop, to, train, |frame| {
                write_headers(frame, &packet, &header, &options, &meta);
            })
        } else {
            link.send(&mut out, &mut hop, to, meta, |frame| {
                write_frame(frame, &packet, &header, &options, bytes, &meta);
            })
        };
        self.hop = hop;
        match sent {
            Sent::Full => {
                cx.full = match is_in_gso_queue {
                    true => Full::Gso,
                    false => Full::Single,
                };
                // The peer does not know of it.
                self.rcv_edge = edge;
                return false;
            }
            Sent::NoWay(error) => self.soft_error = Some(error),
            Sent::Done => {}
        }
        if header.flags & CWR != 0 {
            self.cwr_wanted = false;
        }
        self.note_order(cx.now_us, &segment, is_in_gso_queue);
        self.acknowledged_peer(segment.flags);
        true
    }

    /// Whether a GSO segment that is not acknowledged may be in the other queue of the device than this single one's.
    #[inline]
    fn is_behind_gso(&self, segment: &Outgoing) -> bool {
        segment.gso_size == 0
            && segment.takes_numbers()
            && after(self.gso_end, self.snd_una)
            && !after(self.gso_end, self.snd_nxt)
    }

    /// By which queue a segment has left.
    #[inline]
    fn note_order(&mut self, now_us: u64, segment: &Outgoing, is_in_gso_queue: bool) {
        if is_in_gso_queue {
            let before = match segment.gso_size {
                0 => self.gso_end,
                _ => self.snd_nxt,
            };
            self.gso_end = later(before, segment.seq.wrapping_add(segment.len as u32));
        } else if segment.takes_numbers() {
            self.single_us = now_us;
        }
    }

    #[inline]
    fn extra_flags(&mut self, segment: &Outgoing, cx: &mut Context) -> u8 {
        let mut flags = 0;
        if self.has_ecn && self.ece_wanted {
            cx.stats.ecn_echoes += 1;
            flags |= ECE;
        }
        // Not in a GSO segment, each of whose packets a device may mark.
        if self.cwr_wanted && segment.len > 0 && segment.ecn != 0 && segment.gso_size == 0 {
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
            self.ack_soon = false;
            self.is_overrun = false;
            self.ack_has_waited = false;
            self.delayed_ack_at_us = 0;
            self.quick_acks = self.quick_acks.saturating_sub(1);
        }
    }
}

impl Outgoing {
    /// Whether it has bytes or a FIN.
    #[inline]
    fn takes_numbers(&self) -> bool {
        self.len > 0 || self.flags & tcp::FIN != 0
    }

    /// A segment without bytes.
    pub fn bare(seq: u32) -> Outgoing {
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
    let (headers, payload) = frame.split_at_mut(meta.header_len);
    write_headers(headers, packet, header, options, meta);
    put_payload(payload, [bytes.0, bytes.1]);
    if !meta.partial_checksum {
        let segment = &mut frame[meta.tcp_at..];
        let mut sum = Checksum::default();
        sum.add(segment);
        segment[CHECKSUM_AT].copy_from_slice(&sum.finish());
    }
}

/// Writes the headers, with the sum over the pseudo-header in the field for the checksum.
#[inline]
fn write_headers(
    headers: &mut [u8],
    packet: &ip::Header,
    header: &tcp::Header,
    options: &OptionsToSend,
    meta: &TxMeta,
) {
    packet.emit(&mut headers[ethernet::HEADER..]);
    let segment = &mut headers[meta.tcp_at..];
    header.emit(segment, options);
    let sum = ip::pseudo_header(
        packet.source,
        packet.destination,
        ip::TCP,
        packet.payload_len,
    );
    segment[CHECKSUM_AT].copy_from_slice(&sum.partial());
}

/// Sends a segment without bytes that belongs to no connection, or not yet to one: with the traffic class and hop limit
/// of these settings.
pub fn send_bare<S: TxSink>(
    out: &mut Out<'_, S>,
    link: &mut Link,
    hop: &mut crate::route::Hop,
    (header, flow_label): (&tcp::Header, u32),
    (options, settings): (&OptionsToSend, &Settings),
) -> Sent {
    let flow = header.flow;
    let tcp_len = tcp::HEADER + options.len();
    let packet = ip::Header {
        source: flow.local,
        destination: flow.remote,
        protocol: ip::TCP,
        traffic_class: settings.traffic_class & !3,
        hops: settings.hops_or(link.routes.hops(flow.remote, out.config.hops)),
        flow_label,
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
        in_order: false,
    };
    link.send(out, hop, flow.remote, meta, |frame| {
        write_frame(frame, &packet, header, options, (&[], &[]), &meta);
    })
}
