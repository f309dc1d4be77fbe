//! ARP for IPv4 over Ethernet (RFC 826).

use super::{be16, ethernet::Mac};
use core::net::Ipv4Addr;

/// Bytes of an ARP packet.
pub const LEN: usize = 28;

/// A request or a reply.
pub struct Arp {
    /// True for a request, false for a reply.
    pub is_request: bool,
    /// Link address of the sender.
    pub sender_mac: Mac,
    /// IPv4 address of the sender.
    pub sender: Ipv4Addr,
    /// Link address of the target; meaningless in a request.
    pub target_mac: Mac,
    /// IPv4 address of the target.
    pub target: Ipv4Addr,
}

/// Parses a packet; None when it is not Ethernet and IPv4, or neither request nor reply.
pub fn parse(bytes: &[u8]) -> Option<Arp> {
    let packet = bytes.first_chunk::<LEN>()?;
    let operation = be16(packet, 6);
    if packet[..6] != [0, 1, 8, 0, 6, 4] || !(1..=2).contains(&operation) {
        return None;
    }
    let mac = |at: usize| core::array::from_fn(|i| packet[at + i]);
    let ip = |at: usize| Ipv4Addr::from(super::be32(packet, at));
    Some(Arp {
        is_request: operation == 1,
        sender_mac: mac(8),
        sender: ip(14),
        target_mac: mac(18),
        target: ip(24),
    })
}

/// Encodes a packet.
pub fn emit(bytes: &mut [u8], arp: &Arp) {
    bytes[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
    super::put16(bytes, 6, if arp.is_request { 1 } else { 2 });
    bytes[8..14].copy_from_slice(&arp.sender_mac);
    bytes[14..18].copy_from_slice(&arp.sender.octets());
    bytes[18..24].copy_from_slice(&arp.target_mac);
    bytes[24..28].copy_from_slice(&arp.target.octets());
}
