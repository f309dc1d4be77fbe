//! IPv4 (RFC 791) and IPv6 (RFC 8200) headers behind one address type.

use super::checksum::{self, Checksum};
use super::{be16, be32, put16};
use crate::sink::Sum;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of ICMPv6.
pub const ICMPV6: u8 = 58;
/// Bytes of an IPv4 header without options.
pub const V4_HEADER: usize = 20;
/// Bytes of an IPv6 header.
pub const V6_HEADER: usize = 40;
/// ECN codepoint: congestion experienced (RFC 3168).
pub const CE: u8 = 3;
/// ECN codepoint: ECN-capable transport (0).
pub const ECT0: u8 = 2;

/// Extension headers that we look behind; longer chains are refused.
const EXTENSIONS_MAX: usize = 4;

/// An IPv4 or IPv6 address; IPv4 as IPv4-mapped IPv6, so that a comparison is two words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Addr {
    /// The first eight bytes.
    pub high: u64,
    /// The last eight bytes.
    pub low: u64,
}

const MAPPED: u64 = 0xffff_0000_0000;

impl Addr {
    /// An IPv4 address.
    #[inline]
    pub const fn v4(bits: u32) -> Addr {
        Addr {
            high: 0,
            low: MAPPED | bits as u64,
        }
    }

    /// Whether it is IPv4.
    #[inline]
    pub const fn is_v4(self) -> bool {
        self.high == 0 && self.low >> 32 == 0xffff
    }

    /// The IPv4 address in the last four bytes.
    #[inline]
    pub const fn v4_bits(self) -> u32 {
        self.low as u32
    }

    /// Whether it is 0.0.0.0 or `::`.
    pub const fn is_unspecified(self) -> bool {
        self.high == 0 && (self.low == 0 || self.low == MAPPED)
    }

    /// Whether packets to it may have more than one receiver.
    pub const fn is_multicast(self) -> bool {
        if self.is_v4() {
            self.v4_bits() >> 28 == 0xe || self.v4_bits() == u32::MAX
        } else {
            self.high >> 56 == 0xff
        }
    }

    /// Whether it never comes over a link: loopback, or of 0.0.0.0/8 (RFC 1122, 3.2.1.3; RFC 4291, 2.5.3).
    #[inline]
    pub const fn is_of_no_link(self) -> bool {
        match self.is_v4() {
            true => matches!(self.v4_bits() >> 24, 0 | 127),
            false => self.high == 0 && self.low <= 1,
        }
    }

    /// The sixteen bytes.
    pub fn octets(self) -> [u8; 16] {
        ((u128::from(self.high) << 64) | u128::from(self.low)).to_be_bytes()
    }
}

impl From<IpAddr> for Addr {
    fn from(ip: IpAddr) -> Addr {
        match ip {
            IpAddr::V4(ip) => Addr::v4(ip.to_bits()),
            IpAddr::V6(ip) => {
                let bits = ip.to_bits();
                Addr {
                    high: (bits >> 64) as u64,
                    low: bits as u64,
                }
            }
        }
    }
}

impl From<Addr> for IpAddr {
    fn from(addr: Addr) -> IpAddr {
        if addr.is_v4() {
            IpAddr::V4(Ipv4Addr::from_bits(addr.v4_bits()))
        } else {
            IpAddr::V6(Ipv6Addr::from(addr.octets()))
        }
    }
}

/// One received packet, taken apart.
pub struct Packet<'a> {
    /// The sender.
    pub source: Addr,
    /// Whom it is for.
    pub destination: Addr,
    /// Protocol of the payload.
    pub protocol: u8,
    /// The byte of DSCP and ECN (RFC 2474, 3; RFC 3168, 5).
    pub traffic_class: u8,
    /// Time to live, or hop limit.
    pub hops: u8,
    /// The payload, cut to the length that the header states.
    pub payload: &'a [u8],
}

/// Why a packet was not taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Shorter than its header says, a wrong version or a wrong checksum.
    Malformed,
    /// A fragment; the engine does not put fragments together.
    Fragment,
}

/// Takes an IPv4 packet apart. `trusted` leaves the header's checksum unread, for a frame whose reader will verify it.
#[inline]
pub fn parse_v4(bytes: &[u8], trusted: bool) -> Result<Packet<'_>, Refusal> {
    let header = bytes.first_chunk::<V4_HEADER>().ok_or(Refusal::Malformed)?;
    let header_len = usize::from(header[0] & 0xf) * 4;
    let total = usize::from(be16(header, 2));
    let sane = header[0] >> 4 == 4 && header_len >= V4_HEADER && total >= header_len;
    if !sane || bytes.len() < total {
        return Err(Refusal::Malformed);
    }
    let sum = || match header_len {
        V4_HEADER => checksum::of(header),
        _ => checksum::of(&bytes[..header_len]),
    };
    if !trusted && sum() != [0, 0] {
        return Err(Refusal::Malformed);
    }
    if be16(header, 6) & 0x3fff != 0 {
        return Err(Refusal::Fragment);
    }
    Ok(Packet {
        source: Addr::v4(be32(header, 12)),
        destination: Addr::v4(be32(header, 16)),
        protocol: header[9],
        traffic_class: header[1],
        hops: header[8],
        payload: &bytes[header_len..total],
    })
}

/// Takes an IPv6 packet apart, looking behind hop-by-hop, destination and spent routing headers.
#[inline]
pub fn parse_v6(bytes: &[u8]) -> Result<Packet<'_>, Refusal> {
    let header = bytes.first_chunk::<V6_HEADER>().ok_or(Refusal::Malformed)?;
    let end = V6_HEADER + usize::from(be16(header, 4));
    if header[0] >> 4 != 6 || bytes.len() < end {
        return Err(Refusal::Malformed);
    }
    let (protocol, start) = skip_extensions(&bytes[..end], header[6])?;
    let address = |at: usize| Addr {
        high: u64::from(be32(header, at)) << 32 | u64::from(be32(header, at + 4)),
        low: u64::from(be32(header, at + 8)) << 32 | u64::from(be32(header, at + 12)),
    };
    Ok(Packet {
        source: address(8),
        destination: address(24),
        protocol,
        traffic_class: header[0] << 4 | header[1] >> 4,
        hops: header[7],
        payload: &bytes[start..end],
    })
}

fn skip_extensions(packet: &[u8], first: u8) -> Result<(u8, usize), Refusal> {
    const HOP_BY_HOP: u8 = 0;
    const ROUTING: u8 = 43;
    const FRAGMENT: u8 = 44;
    const DESTINATION: u8 = 60;
    let (mut next, mut at) = (first, V6_HEADER);
    for _ in 0..EXTENSIONS_MAX {
        match next {
            HOP_BY_HOP | ROUTING | DESTINATION => {
                let extension = packet.get(at..at + 8).ok_or(Refusal::Malformed)?;
                if next == ROUTING && extension[3] != 0 {
                    return Err(Refusal::Malformed);
                }
                next = extension[0];
                at += 8 + usize::from(extension[1]) * 8;
            }
            FRAGMENT => return Err(Refusal::Fragment),
            _ if at <= packet.len() => return Ok((next, at)),
            _ => return Err(Refusal::Malformed),
        }
    }
    Err(Refusal::Malformed)
}

/// What a header is written from.
pub struct Header {
    /// The sender.
    pub source: Addr,
    /// Whom it is for.
    pub destination: Addr,
    /// Protocol of the payload.
    pub protocol: u8,
    /// The byte of DSCP and ECN (RFC 2474, 3; RFC 3168, 5).
    pub traffic_class: u8,
    /// Time to live, or hop limit.
    pub hops: u8,
    /// IPv6 flow label (RFC 6437), 20 bits.
    pub flow_label: u32,
    /// IPv4 identification; the packet is never fragmented, so that any value does (RFC 6864).
    pub id: u16,
    /// Bytes behind the header.
    pub payload_len: usize,
}

impl Header {
    /// Bytes that [`Header::emit`] writes.
    pub fn len(&self) -> usize {
        header_len(self.destination)
    }

    /// Writes the header at the start of `bytes`.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        if self.destination.is_v4() {
            self.emit_v4(bytes);
        } else {
            self.emit_v6(bytes);
        }
    }

    fn emit_v4(&self, bytes: &mut [u8]) {
        let header: &mut [u8; V4_HEADER] = bytes
            .first_chunk_mut()
            .expect("the caller gives room for the header");
        *header = [0; V4_HEADER];
        header[0] = 0x45;
        header[1] = self.traffic_class;
        put16(header, 2, (V4_HEADER + self.payload_len) as u16);
        put16(header, 4, self.id);
        header[6] = 0x40; // don't fragment: RFC 1191
        header[8] = self.hops;
        header[9] = self.protocol;
        super::put32(header, 12, self.source.v4_bits());
        super::put32(header, 16, self.destination.v4_bits());
        let sum = checksum::of(&header[..]);
        header[10..12].copy_from_slice(&sum);
    }

    fn emit_v6(&self, bytes: &mut [u8]) {
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label & 0xf_ffff;
        bytes[..4].copy_from_slice(&first.to_be_bytes());
        put16(bytes, 4, self.payload_len as u16);
        bytes[6] = self.protocol;
        bytes[7] = self.hops;
        bytes[8..24].copy_from_slice(&self.source.octets());
        bytes[24..40].copy_from_slice(&self.destination.octets());
    }
}

/// Bytes of the header that a packet to this address carries.
pub fn header_len(destination: Addr) -> usize {
    if destination.is_v4() {
        V4_HEADER
    } else {
        V6_HEADER
    }
}

/// The sum over the pseudo-header of TCP and ICMPv6 (RFC 9293, 3.1; RFC 8200, 8.1).
#[inline]
pub fn pseudo_header(source: Addr, destination: Addr, protocol: u8, len: usize) -> Checksum {
    let mut sum = Checksum::default();
    if destination.is_v4() {
        sum.add64(u64::from(source.v4_bits()) << 32 | u64::from(destination.v4_bits()));
    } else {
        for word in [source.high, source.low, destination.high, destination.low] {
            sum.add64(word);
        }
    }
    sum.add64((len as u64) << 32 | u64::from(protocol));
    sum
}

/// Whether the checksum of a TCP segment or datagram, whose bytes and field are given, is right as far as
/// `known` demands.
#[inline]
pub fn is_intact(packet: &Packet, protocol: u8, (bytes, field): (&[u8], u16), known: Sum) -> bool {
    if known == Sum::Verified {
        return true;
    }
    let mut sum = pseudo_header(packet.source, packet.destination, protocol, bytes.len());
    if known == Sum::MayBePartial && u16::from_be_bytes(sum.partial()) == field {
        return true;
    }
    sum.add(bytes);
    sum.finish() == [0, 0]
}
