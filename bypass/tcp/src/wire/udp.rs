//! UDP headers (RFC 768).

use super::{be16, put16};
use crate::sink::Sum;
use crate::wire::ip::{self, Addr, Packet};

/// Bytes of a header.
pub const HEADER: usize = 8;

/// A datagram, taken apart.
pub struct Datagram<'a> {
    /// Port of the sender.
    pub source: u16,
    /// Port of the receiver.
    pub destination: u16,
    /// What it carries.
    pub payload: &'a [u8],
}

/// Takes a datagram apart; None: it is malformed, or its checksum wrong for all that is known of it.
#[inline]
pub fn parse<'a>(packet: &Packet<'a>, known: Sum) -> Option<Datagram<'a>> {
    let header = packet.payload.first_chunk::<HEADER>()?;
    let bytes = packet.payload.get(..usize::from(be16(header, 4)))?;
    let payload = bytes.get(HEADER..)?;
    // None was made; IPv6 allows that to tunnels alone (RFC 8200, 8.1).
    let has_none = be16(header, 6) == 0;
    if has_none && !packet.destination.is_v4() {
        return None;
    }
    let checked = (bytes, be16(header, 6));
    if !has_none && !ip::is_intact(packet, ip::UDP, checked, known) {
        return None;
    }
    Some(Datagram {
        source: be16(header, 0),
        destination: be16(header, 2),
        payload,
    })
}

/// Writes a datagram whose pieces have `len` bytes together.
pub fn emit(bytes: &mut [u8], (source, destination): ((Addr, u16), (Addr, u16)), pieces: &[&[u8]]) {
    put16(bytes, 0, source.1);
    put16(bytes, 2, destination.1);
    put16(bytes, 4, bytes.len() as u16);
    put16(bytes, 6, 0);
    let mut at = HEADER;
    for piece in pieces {
        bytes[at..at + piece.len()].copy_from_slice(piece);
        at += piece.len();
    }
    let mut sum = ip::pseudo_header(source.0, destination.0, ip::UDP, bytes.len());
    sum.add(bytes);
    // Zero would say that there is none.
    let sum = match sum.finish() {
        [0, 0] => [0xff, 0xff],
        sum => sum,
    };
    bytes[6..8].copy_from_slice(&sum);
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const ENDS: (Addr, Addr) = (Addr::v4(0x0a00_0001), Addr::v4(0x0a00_0002));

    fn packet(payload: &[u8]) -> Packet<'_> {
        Packet {
            source: ENDS.0,
            destination: ENDS.1,
            protocol: ip::UDP,
            traffic_class: 0,
            hops: 64,
            payload,
        }
    }

    fn emitted(pieces: &[&[u8]]) -> alloc::vec::Vec<u8> {
        let len: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut bytes = vec![0xee; HEADER + len];
        emit(&mut bytes, ((ENDS.0, 5000), (ENDS.1, 53)), pieces);
        bytes
    }

    #[test]
    fn what_is_written_is_read_again_without_what_pads_it() {
        let mut bytes = emitted(&[b"que", b"", b"ry"]);
        bytes.extend([0; 7]);
        let packet = packet(&bytes);
        let datagram = parse(&packet, Sum::Unknown).expect("good");
        assert_eq!((datagram.source, datagram.destination), (5000, 53));
        assert_eq!(datagram.payload, b"query");
    }

    #[test]
    fn a_datagram_with_any_other_bit_is_refused() {
        let good = emitted(&[b"a datagram"]);
        for bit in 0..good.len() * 8 {
            let mut bytes = good.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&packet(&bytes), Sum::Unknown).is_none(), "bit {bit}");
        }
        assert!((0..good.len()).all(|len| parse(&packet(&good[..len]), Sum::Verified).is_none()));
    }

    #[test]
    fn ipv4_needs_no_checksum_and_ipv6_does() {
        let mut bytes = emitted(&[b"x"]);
        bytes[6..8].fill(0);
        assert!(parse(&packet(&bytes), Sum::Unknown).is_some());
        let over_v6 = Packet {
            destination: Addr { high: 1, low: 2 },
            ..packet(&bytes)
        };
        assert!(parse(&over_v6, Sum::Verified).is_none());
    }

    #[test]
    fn a_sum_of_zero_is_not_taken_for_none() {
        let found = (0..=u16::MAX).find(|word| {
            let bytes = emitted(&[&word.to_be_bytes()]);
            bytes[6..8] == [0xff, 0xff]
        });
        let bytes = emitted(&[&found.expect("one of them").to_be_bytes()]);
        assert!(parse(&packet(&bytes), Sum::Unknown).is_some());
    }
}
