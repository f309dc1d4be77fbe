//! TCP segments: header and options (RFC 9293, RFC 7323, RFC 2018).

use super::{be16, be32, ip, put16, put32};
use crate::sink::Sum;
use crate::wire::ip::Addr;

/// Bytes of a header without options.
pub const HEADER: usize = 20;
/// Bytes of options that fit behind the header.
pub const OPTIONS_MAX: usize = 40;
/// Bytes that timestamps take in every segment, padding included.
pub const TIMESTAMPS_LEN: usize = 12;

/// No more data from the sender.
pub const FIN: u8 = 0x01;
/// Synchronise sequence numbers.
pub const SYN: u8 = 0x02;
/// Reset the connection.
pub const RST: u8 = 0x04;
/// Push.
pub const PSH: u8 = 0x08;
/// The acknowledgment field counts.
pub const ACK: u8 = 0x10;
/// The urgent pointer counts.
pub const URG: u8 = 0x20;
/// ECN echo (RFC 3168).
pub const ECE: u8 = 0x40;
/// Congestion window reduced (RFC 3168).
pub const CWR: u8 = 0x80;

/// One end-to-end pair, seen from this side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Flow {
    /// Our address.
    pub local: Addr,
    /// The other side's address.
    pub remote: Addr,
    /// Our port in the upper half, the other side's in the lower.
    pub ports: u32,
}

impl Flow {
    /// A pair from its parts.
    pub fn new(local: Addr, local_port: u16, remote: Addr, remote_port: u16) -> Flow {
        Flow {
            local,
            remote,
            ports: u32::from(local_port) << 16 | u32::from(remote_port),
        }
    }

    /// Our port.
    pub fn local_port(&self) -> u16 {
        (self.ports >> 16) as u16
    }

    /// The other side's port.
    pub fn remote_port(&self) -> u16 {
        self.ports as u16
    }
}

/// One received segment, taken apart.
pub struct Segment<'a> {
    /// Whose it is, seen from this side.
    pub flow: Flow,
    /// Sequence number of the first byte (or of SYN).
    pub seq: u32,
    /// Acknowledgment number; meaningless without ACK.
    pub ack: u32,
    /// The eight flags.
    pub flags: u8,
    /// The window field as it stands on the wire.
    pub window: u16,
    /// The urgent pointer; meaningless without URG.
    pub urgent: u16,
    /// The two ECN bits of the packet.
    pub ecn: u8,
    /// The options.
    pub options: Options<'a>,
    /// The bytes.
    pub payload: &'a [u8],
}

impl Segment<'_> {
    /// Whether any of these flags is set.
    #[inline]
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// Sequence numbers that the segment covers: bytes, SYN and FIN.
    #[inline]
    pub fn len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.has(SYN)) + u32::from(self.has(FIN))
    }

    /// The sequence number behind the segment.
    #[inline]
    pub fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len())
    }

    /// Bytes and FIN of a segment with SYN as a segment of their own: their numbers begin behind that of the SYN. Its
    /// urgent pointer is not followed.
    pub fn behind_syn(&self) -> Self {
        Segment {
            seq: self.seq.wrapping_add(1),
            flags: self.flags & !(SYN | URG),
            ..*self
        }
    }
}

/// The options that we know; an unknown one is skipped by its length.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Options<'a> {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Shift of the window field.
    pub window_scale: Option<u8>,
    /// Whether selective acknowledgments may be sent.
    pub sack_permitted: bool,
    /// Timestamp value and echo.
    pub timestamps: Option<(u32, u32)>,
    /// The blocks of a SACK option: left and right edges, eight bytes a block.
    pub sack: &'a [u8],
}

impl<'a> Options<'a> {
    /// Reads the options. A length that cannot be right ends the reading; what was read counts.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Options<'a> {
        // Nearly every segment carries exactly NOP, NOP, timestamps.
        if let Some(aligned) = bytes.first_chunk::<TIMESTAMPS_LEN>() {
            if bytes.len() == TIMESTAMPS_LEN && aligned[..4] == [1, 1, 8, 10] {
                let timestamps = Some((be32(aligned, 4), be32(aligned, 8)));
                return Options {
                    timestamps,
                    ..Options::default()
                };
            }
        }
        Self::parse_any(bytes)
    }

    fn parse_any(mut bytes: &'a [u8]) -> Options<'a> {
        let mut options = Options::default();
        while let Some((&kind, rest)) = bytes.split_first() {
            match kind {
                0 => break,
                1 => bytes = rest,
                _ => {
                    let Some(&len) = rest.first() else { break };
                    let Some(body) = bytes.get(2..usize::from(len)) else {
                        break;
                    };
                    options.take(kind, body);
                    bytes = &bytes[usize::from(len)..];
                }
            }
        }
        options
    }

    fn take(&mut self, kind: u8, body: &'a [u8]) {
        match (kind, body.len()) {
            (2, 2) => self.mss = Some(be16(body, 0)).filter(|mss| *mss > 0),
            (3, 1) => self.window_scale = Some(body[0]),
            (4, 0) => self.sack_permitted = true,
            (5, 8 | 16 | 24 | 32) => self.sack = body,
            (8, 8) => self.timestamps = Some((be32(body, 0), be32(body, 4))),
            _ => {}
        }
    }

    /// The blocks of the SACK option.
    pub fn sack_blocks(&self) -> impl Iterator<Item = (u32, u32)> + 'a {
        self.sack
            .chunks_exact(8)
            .map(|block| (be32(block, 0), be32(block, 4)))
    }
}

/// Options to be written, in Linux's order: MSS, SACK permitted, timestamps, window scale, SACK.
#[derive(Clone, Copy, Default)]
pub struct OptionsToSend {
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Shift of the window field.
    pub window_scale: Option<u8>,
    /// Whether to permit selective acknowledgments.
    pub sack_permitted: bool,
    /// Timestamp value and echo.
    pub timestamps: Option<(u32, u32)>,
    /// SACK blocks; only the first `sack_count` count.
    pub sack: [(u32, u32); 4],
    /// How many blocks.
    pub sack_count: usize,
}

impl OptionsToSend {
    /// Bytes that [`OptionsToSend::emit`] writes; a multiple of four.
    #[inline]
    pub fn len(&self) -> usize {
        let sack_pair = self.sack_permitted && self.timestamps.is_none();
        4 * usize::from(self.mss.is_some())
            + TIMESTAMPS_LEN * usize::from(self.timestamps.is_some())
            + 4 * usize::from(sack_pair)
            + 4 * usize::from(self.window_scale.is_some())
            + if self.sack_count > 0 {
                4 + 8 * self.sack_count
            } else {
                0
            }
    }

    /// Writes the options; `bytes` has exactly [`OptionsToSend::len`].
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let mut at = 0;
        if let Some(mss) = self.mss {
            put32(bytes, at, 0x0204_0000 | u32::from(mss));
            at += 4;
        }
        if let Some((value, echo)) = self.timestamps {
            put32(
                bytes,
                at,
                if self.sack_permitted {
                    0x0402_080a
                } else {
                    0x0101_080a
                },
            );
            put32(bytes, at + 4, value);
            put32(bytes, at + 8, echo);
            at += TIMESTAMPS_LEN;
        } else if self.sack_permitted {
            put32(bytes, at, 0x0101_0402);
            at += 4;
        }
        if let Some(shift) = self.window_scale {
            put32(bytes, at, 0x0103_0300 | u32::from(shift));
            at += 4;
        }
        if self.sack_count > 0 {
            put32(bytes, at, 0x0101_0500 | (2 + 8 * self.sack_count as u32));
            at += 4;
            for (left, right) in &self.sack[..self.sack_count] {
                put32(bytes, at, *left);
                put32(bytes, at + 4, *right);
                at += 8;
            }
        }
    }
}

/// Takes a segment apart. None: it is malformed, or its checksum wrong for all that is known of it.
#[inline]
pub fn parse<'a>(packet: &ip::Packet<'a>, known: Sum) -> Option<Segment<'a>> {
    let bytes = packet.payload;
    let header = bytes.first_chunk::<HEADER>()?;
    let header_len = usize::from(header[12] >> 4) * 4;
    if header_len < HEADER || header_len > bytes.len() {
        return None;
    }
    if !ip::is_intact(packet, ip::TCP, (bytes, be16(header, 16)), known) {
        return None;
    }
    Some(Segment {
        flow: Flow {
            local: packet.destination,
            remote: packet.source,
            ports: be32(header, 0).rotate_left(16),
        },
        seq: be32(header, 4),
        ack: be32(header, 8),
        flags: header[13],
        window: be16(header, 14),
        urgent: be16(header, 18),
        ecn: packet.traffic_class & 3,
        options: Options::parse(&bytes[HEADER..header_len]),
        payload: &bytes[header_len..],
    })
}

/// What a header is written from.
pub struct Header {
    /// Whose it is, seen from this side.
    pub flow: Flow,
    /// Sequence number of the first byte (or of SYN).
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// The eight flags.
    pub flags: u8,
    /// The window field as it stands on the wire.
    pub window: u16,
    /// The urgent pointer.
    pub urgent: u16,
}

impl Header {
    /// Writes header and options at the start of `bytes`, the checksum field as zero.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8], options: &OptionsToSend) {
        let header_len = HEADER + options.len();
        let header: &mut [u8; HEADER] = bytes
            .first_chunk_mut()
            .expect("the caller gives room for the header");
        put32(header, 0, self.flow.ports);
        put32(header, 4, self.seq);
        put32(header, 8, self.ack);
        header[12] = (header_len as u8 / 4) << 4;
        header[13] = self.flags;
        put16(header, 14, self.window);
        put16(header, 16, 0);
        put16(header, 18, self.urgent);
        options.emit(&mut bytes[HEADER..header_len]);
    }
}
