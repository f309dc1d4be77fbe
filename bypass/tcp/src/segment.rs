//! One segment: its header, options and bytes, out to the device.

use crate::conn::{Conn, Context, State};
use crate::neighbour::{Link, Out, Sent};
use crate::seq::{after, later};
use crate::sink::{TxMeta, TxSink};
use crate::wire::tcp::{self, OptionsToSend, ACK, CWR, ECE, URG};
use crate::wire::{ethernet, ip};

/// Hop limit of our packets.
const HOPS: u8 = 64;
/// SACK blocks that fit beside timestamps, and without them.
pub const SACK_BLOCKS_WITH_TIMESTAMPS: usize = 3;

/// One segment about to leave.
#[derive(Clone, Copy)]
pub struct Outgoing {
    /// Sequence number.
    pub seq: u32,
    /// Its flags, without those that the state of the connection adds.
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
    pub fn emit<S: TxSink>(
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
