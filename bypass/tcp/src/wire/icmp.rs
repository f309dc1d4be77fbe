//! ICMP (RFC 792), ICMPv6 (RFC 4443) and neighbour discovery (RFC 4861): what a TCP host needs.

use super::ethernet::Mac;
use super::ip::{self, Addr};
use super::tcp::Flow;
use super::{be16, be32, checksum};
use crate::error::Error;

/// Bytes of a neighbour solicitation or advertisement with one link-address option.
pub const NEIGHBOUR_LEN: usize = 32;

/// A message that the engine acts on.
pub enum Message<'a> {
    /// A request that wants the same bytes back; everything behind type, code and checksum.
    EchoRequest(&'a [u8]),
    /// A packet of ours was not delivered.
    Error {
        /// Whose packet.
        flow: Flow,
        /// Its sequence number.
        seq: u32,
        /// The error.
        kind: ErrorKind,
    },
    /// The address that is asked for.
    Solicitation {
        /// The address that is asked for.
        target: Addr,
        /// The asker's link address, when it says so.
        source_mac: Option<Mac>,
    },
    /// I have this address.
    Advertisement {
        /// The address.
        target: Addr,
        /// Its link address.
        target_mac: Option<Mac>,
        /// Whether the sender says that it was asked.
        is_solicited: bool,
    },
}

/// Why a packet was not delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// Too large for a link on the way; the largest that passes.
    TooBig(u32),
    /// What Linux reports for it.
    Undelivered(Error),
}

/// Reads an ICMP message; nothing when it is malformed or of no interest.
pub fn parse_v4(bytes: &[u8]) -> Option<Message<'_>> {
    if bytes.len() < 8 || checksum::of(bytes) != [0, 0] {
        return None;
    }
    let kind = match (bytes[0], bytes[1]) {
        (8, 0) => return Some(Message::EchoRequest(&bytes[4..])),
        (3, 4) => ErrorKind::TooBig(u32::from(be16(bytes, 6))),
        (3, code @ 0..=15) => ErrorKind::Undelivered(error_v4(code)),
        // Linux, too, makes nothing of fragments that never came together.
        (11, 0) => ErrorKind::Undelivered(Error::HostUnreachable),
        _ => return None,
    };
    let quoted = &bytes[8..];
    let header_len = usize::from(quoted.first()? & 0xf) * 4;
    if quoted.len() < header_len.max(ip::V4_HEADER) + 8 || quoted[9] != ip::TCP {
        return None;
    }
    let (local, remote) = (Addr::v4(be32(quoted, 12)), Addr::v4(be32(quoted, 16)));
    Some(error(local, remote, &quoted[header_len..], kind))
}

/// Linux's icmp_err_convert.
fn error_v4(code: u8) -> Error {
    match code {
        0 | 6 | 9 | 11 => Error::NetworkUnreachable,
        2 => Error::ProtocolUnavailable,
        3 => Error::ConnectionRefused,
        5 => Error::NotSupported,
        7 => Error::HostDown,
        8 => Error::HostIsolated,
        _ => Error::HostUnreachable,
    }
}

/// Linux's icmpv6_err_convert.
fn error_v6(code: u8) -> Error {
    match code {
        0 => Error::NetworkUnreachable,
        1 | 5 | 6 => Error::PermissionDenied,
        4 => Error::ConnectionRefused,
        _ => Error::HostUnreachable,
    }
}

/// Reads an ICMPv6 message; nothing when it is malformed or of no interest.
pub fn parse_v6<'a>(packet: &ip::Packet<'a>) -> Option<Message<'a>> {
    let bytes = packet.payload;
    let mut sum = ip::pseudo_header(packet.source, packet.destination, ip::ICMPV6, bytes.len());
    sum.add(bytes);
    if bytes.len() < 8 || sum.finish() != [0, 0] {
        return None;
    }
    let kind = match (bytes[0], bytes[1]) {
        (128, 0) => return Some(Message::EchoRequest(&bytes[4..])),
        (135 | 136, 0) => return neighbour(packet),
        (1, code) => ErrorKind::Undelivered(error_v6(code)),
        (2, _) => ErrorKind::TooBig(be32(bytes, 4)),
        (3, _) => ErrorKind::Undelivered(Error::HostUnreachable),
        _ => return None,
    };
    let quoted = &bytes[8..];
    if quoted.len() < ip::V6_HEADER + 8 || quoted[6] != ip::TCP {
        return None;
    }
    let address = |at: usize| Addr {
        high: u64::from(be32(quoted, at)) << 32 | u64::from(be32(quoted, at + 4)),
        low: u64::from(be32(quoted, at + 8)) << 32 | u64::from(be32(quoted, at + 12)),
    };
    Some(error(
        address(8),
        address(24),
        &quoted[ip::V6_HEADER..],
        kind,
    ))
}

fn error<'a>(local: Addr, remote: Addr, tcp: &[u8], kind: ErrorKind) -> Message<'a> {
    let flow = Flow {
        local,
        remote,
        ports: be32(tcp, 0),
    };
    Message::Error {
        flow,
        seq: be32(tcp, 4),
        kind,
    }
}

/// RFC 4861, 7.1: only from the link itself, so that the hop limit is still 255.
fn neighbour<'a>(packet: &ip::Packet<'a>) -> Option<Message<'a>> {
    let bytes = packet.payload;
    if packet.hops != 255 || bytes.len() < 24 {
        return None;
    }
    let word = |at: usize| u64::from(be32(bytes, at)) << 32 | u64::from(be32(bytes, at + 4));
    let target = Addr {
        high: word(8),
        low: word(16),
    };
    if target.is_multicast() {
        return None;
    }
    if bytes[0] == 135 {
        return Some(Message::Solicitation {
            target,
            source_mac: link_address(&bytes[24..], 1)?,
        });
    }
    let target_mac = link_address(&bytes[24..], 2)?;
    Some(Message::Advertisement {
        target,
        target_mac,
        is_solicited: bytes[4] & 0x40 != 0,
    })
}

/// The link-address option of this kind; nothing at all when an option has no length.
fn link_address(mut options: &[u8], kind: u8) -> Option<Option<Mac>> {
    let mut found = None;
    while options.len() >= 8 {
        let len = usize::from(options[1]) * 8;
        if len == 0 || len > options.len() {
            return None;
        }
        if options[0] == kind && len == 8 {
            found = Some(core::array::from_fn(|i| options[2 + i]));
        }
        options = &options[len..];
    }
    Some(found)
}

/// Writes an echo reply into `bytes`, of which `body` is everything behind the checksum.
pub fn emit_echo_reply(bytes: &mut [u8], body: &[u8], source: Addr, destination: Addr) {
    let is_v4 = destination.is_v4();
    bytes[..4].copy_from_slice(&[if is_v4 { 0 } else { 129 }, 0, 0, 0]);
    bytes[4..].copy_from_slice(body);
    finish(bytes, source, destination);
}

/// Writes a solicitation (`is_answer` false) or an advertisement for `target` from `mac`.
pub fn emit_neighbour(
    bytes: &mut [u8],
    (source, destination): (Addr, Addr),
    target: Addr,
    mac: Mac,
    is_answer: bool,
) {
    bytes[..8].fill(0);
    bytes[0] = if is_answer { 136 } else { 135 };
    if is_answer {
        bytes[4] = 0x60; // solicited, override
    }
    bytes[8..24].copy_from_slice(&target.octets());
    bytes[24..26].copy_from_slice(&[if is_answer { 2 } else { 1 }, 1]);
    bytes[26..32].copy_from_slice(&mac);
    finish(bytes, source, destination);
}

fn finish(bytes: &mut [u8], source: Addr, destination: Addr) {
    let mut sum = if destination.is_v4() {
        checksum::Checksum::default()
    } else {
        ip::pseudo_header(source, destination, ip::ICMPV6, bytes.len())
    };
    sum.add(bytes);
    let sum = sum.finish();
    bytes[2..4].copy_from_slice(&sum);
}
