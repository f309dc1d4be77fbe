//! UDP (RFC 768) over the engine's link: datagrams are taken apart and sent, and whose they are is the caller's
//! business. Fragments, multicast and errors are left to whoever has the interface besides.

use core::net::{IpAddr, SocketAddr};

use crate::engine::Engine;
use crate::error::Error;
use crate::neighbour::Sent;
use crate::route::Hop;
use crate::sink::{Rx, TxMeta, TxSink};
use crate::wire::ip::{self, Addr, Header};
use crate::wire::tcp::Flow;
use crate::wire::{ethernet, udp};

/// A datagram that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The sender.
    pub source: SocketAddr,
    /// Whom it is for: an address of this host.
    pub destination: SocketAddr,
    /// The byte of DSCP and ECN.
    pub traffic_class: u8,
    /// Time to live, or hop limit.
    pub hops: u8,
    /// What it carries.
    pub payload: &'a [u8],
}

/// The way of datagrams to one host, which remembers its neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// The sender: an address of this host.
    pub source: SocketAddr,
    /// The receiver, of the same family.
    pub destination: SocketAddr,
    /// The byte of DSCP and ECN.
    pub traffic_class: u8,
    /// Time to live, or hop limit; zero: the engine's.
    pub hops: u8,
    hop: Hop,
}

impl Way {
    /// From one address to another.
    pub fn new(source: SocketAddr, destination: SocketAddr) -> Self {
        Self {
            source,
            destination,
            traffic_class: 0,
            hops: 0,
            hop: Hop::default(),
        }
    }
}

/// Whether a frame may carry a datagram, before it is taken apart.
#[inline]
fn may_be_datagram(frame: &[u8]) -> bool {
    const V4_PROTOCOL: usize = ethernet::HEADER + 9;
    const V6_NEXT: usize = ethernet::HEADER + 6;
    let at = match frame.get(12..14) {
        Some([0x08, 0x00]) => V4_PROTOCOL,
        Some([0x86, 0xdd]) => V6_NEXT,
        _ => return false,
    };
    frame.get(at) == Some(&ip::UDP)
}

impl Engine {
    /// The datagram in a received frame, where it is a good one for this host. Bad ones are counted.
    pub fn datagram<'a>(&mut self, rx: &Rx<'a>) -> Option<Datagram<'a>> {
        if !may_be_datagram(rx.bytes) {
            return None;
        }
        let frame = ethernet::parse(rx.bytes)?;
        let is_v4 = frame.ethertype == ethernet::IPV4;
        let packet = match is_v4 {
            true => ip::parse_v4(frame.payload, false),
            false => ip::parse_v6(frame.payload),
        }
        .ok()?;
        let routes = &self.link.routes;
        let is_mapped = !is_v4 && packet.source.is_v4();
        let is_personal = self.cx.is_own_station(frame.destination) && !is_mapped;
        let is_ours = is_personal && routes.is_local(packet.destination);
        if !is_ours || !routes.is_possible_source(packet.source) {
            return None;
        }
        let Some(datagram) = udp::parse(&packet, rx.sum) else {
            self.cx.stats.in_errs += 1;
            return None;
        };
        let end = |ip: Addr, port| SocketAddr::new(IpAddr::from(ip), port);
        Some(Datagram {
            source: end(packet.source, datagram.source),
            destination: end(packet.destination, datagram.destination),
            traffic_class: packet.traffic_class,
            hops: packet.hops,
            payload: datagram.payload,
        })
    }

    /// Whether a datagram with so many bytes goes this way whole.
    fn has_room_for(&self, way: &Way, len: usize) -> bool {
        let to = Addr::from(way.destination.ip());
        let mtu = self.link.routes.mtu(to, self.cx.config.mtu, self.cx.now_us);
        ip::header_len(to) + udp::HEADER + len <= mtu as usize
    }

    /// Sends a datagram of some pieces; true when it is with the device, or waits for its neighbour. False: the
    /// device has no room.
    ///
    /// # Errors
    ///
    /// The source is not an address of this host, the destination has no route or is not a single host; the
    /// datagram is longer than a packet of the way ([`Error::InvalidArgument`]).
    pub fn send_datagram<S: TxSink>(
        &mut self,
        now_us: u64,
        way: &mut Way,
        pieces: &[&[u8]],
        sink: &mut S,
    ) -> Result<bool, Error> {
        self.cx.now_us = self.cx.now_us.max(now_us);
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let (source, to) = (way.source.ip().into(), way.destination.ip().into());
        if !self.link.routes.is_local(source) {
            return Err(Error::AddressNotAvailable);
        }
        if !self.has_room_for(way, len) {
            return Err(Error::InvalidArgument);
        }
        if !self.link.routes.is_possible_source(to) || to.is_unspecified() {
            return Err(Error::NetworkUnreachable);
        }
        let flow = Flow::new(source, way.source.port(), to, way.destination.port());
        let header = Header {
            source,
            destination: to,
            protocol: ip::UDP,
            traffic_class: way.traffic_class,
            hops: match way.hops {
                0 => self.link.routes.hops(to, self.cx.config.hops),
                hops => hops,
            },
            flow_label: self.numbers.flow_label(&flow),
            // Never fragmented: any value does (RFC 6864, 4.1).
            id: 0,
            payload_len: udp::HEADER + len,
        };
        let ends = ((source, way.source.port()), (to, way.destination.port()));
        let mut hop = way.hop;
        let (link, mut out) = self.out(sink);
        let meta = TxMeta::whole(header.len() + header.payload_len);
        let sent = link.send(&mut out, &mut hop, to, meta, |frame| {
            let packet = &mut frame[ethernet::HEADER..];
            header.emit(packet);
            udp::emit(&mut packet[header.len()..], ends, pieces);
        });
        way.hop = hop;
        match sent {
            Sent::Done => Ok(true),
            Sent::Full => Ok(false),
            Sent::NoWay(error) => Err(error),
        }
    }
}
