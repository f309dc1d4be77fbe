//! Ethernet II frames.

use super::be16;

/// Bytes of an Ethernet header.
pub const HEADER: usize = 14;
/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// The address of every station.
pub const BROADCAST: Mac = [0xff; 6];

/// A station's address.
pub type Mac = [u8; 6];

/// One received frame, taken apart.
pub struct Frame<'a> {
    /// Whom it is for.
    pub destination: Mac,
    /// The sender.
    pub source: Mac,
    /// The kind of payload.
    pub ethertype: u16,
    /// Everything behind the header, padding included.
    pub payload: &'a [u8],
}

/// Takes a frame apart; nothing when it is too short.
#[inline]
pub fn parse(bytes: &[u8]) -> Option<Frame<'_>> {
    let (header, payload) = bytes.split_first_chunk::<HEADER>()?;
    let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, ..] = *header;
    Some(Frame {
        destination: [d0, d1, d2, d3, d4, d5],
        source: [s0, s1, s2, s3, s4, s5],
        ethertype: be16(header, 12),
        payload,
    })
}

/// Writes a header at the start of a frame.
#[inline]
pub fn emit(frame: &mut [u8], destination: Mac, source: Mac, ethertype: u16) {
    frame[..6].copy_from_slice(&destination);
    frame[6..12].copy_from_slice(&source);
    frame[12..14].copy_from_slice(&ethertype.to_be_bytes());
}
