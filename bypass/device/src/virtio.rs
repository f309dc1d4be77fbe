//! The header before a frame at TAP and AF_PACKET (linux/virtio_net.h).

use crate::frame::{Checksum, Offload, Protocol};

/// Bytes of the header.
pub const HEADER: usize = 10;

const NEEDS_CHECKSUM: u8 = 1;
const CHECKSUM_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The header of a frame to send with these offloads.
pub fn header(offload: Offload) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    if let Some(part) = offload.checksum {
        header[0] = NEEDS_CHECKSUM;
        header[6..8].copy_from_slice(&part.start.to_ne_bytes());
        header[8..10].copy_from_slice(&part.offset.to_ne_bytes());
    }
    if let Some(train) = offload.segments {
        header[1] = match train.protocol {
            Protocol::Tcp4 => GSO_TCP4,
            Protocol::Tcp6 => GSO_TCP6,
            Protocol::Udp => GSO_UDP,
        };
        header[2..4].copy_from_slice(&train.header.to_ne_bytes());
        header[4..6].copy_from_slice(&train.size.to_ne_bytes());
    }
    header
}

/// The contents of a received frame's header: checksum, and segment size or 0.
pub fn read(header: &[u8; HEADER]) -> (Checksum, u16) {
    let checksum = match header[0] {
        flags if flags & NEEDS_CHECKSUM != 0 => Checksum::Partial,
        flags if flags & CHECKSUM_VALID != 0 => Checksum::Verified,
        _ => Checksum::Unknown,
    };
    let size = match header[1] & !GSO_ECN {
        GSO_NONE => 0,
        _ => u16::from_ne_bytes([header[4], header[5]]),
    };
    (checksum, size)
}
