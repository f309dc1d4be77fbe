//! Frames (RFC 9113, 4.1 and 6): headers, types, and the small ones as bytes.

use alloc::vec::Vec;

/// The first bytes of a client (RFC 9113, 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Bytes of a frame header.
pub const HEAD_BYTES: usize = 9;
/// Longest payload that either side may send unless the other allows more.
pub const PAYLOAD_MAX: usize = 16_384;

/// Types of frames.
pub mod kind {
    /// Bytes of a body.
    pub const DATA: u8 = 0;
    /// The start of a header block.
    pub const HEADERS: u8 = 1;
    /// Advice that this client ignores.
    pub const PRIORITY: u8 = 2;
    /// The end of a stream without a response.
    pub const RST_STREAM: u8 = 3;
    /// The limits of a side.
    pub const SETTINGS: u8 = 4;
    /// A push, which this client does not allow.
    pub const PUSH_PROMISE: u8 = 5;
    /// A check whether the other side is alive.
    pub const PING: u8 = 6;
    /// The connection will end soon.
    pub const GOAWAY: u8 = 7;
    /// More bytes may be sent.
    pub const WINDOW_UPDATE: u8 = 8;
    /// More of a header block.
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    /// The last frame of a stream.
    pub const END_STREAM: u8 = 1;
    /// The response to SETTINGS or PING.
    pub const ACK: u8 = 1;
    /// The header block is complete.
    pub const END_HEADERS: u8 = 4;
    /// Padding follows.
    pub const PADDED: u8 = 8;
    /// Priority fields come first.
    pub const PRIORITY: u8 = 32;
}

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of the payload.
    pub length: usize,
    /// Type.
    pub kind: u8,
    /// Flags.
    pub flags: u8,
    /// Number of the stream; 0 is the connection.
    pub stream: u32,
}

impl FrameHead {
    /// Parses a frame header, if all of it is there.
    #[inline]
    pub fn read(bytes: &[u8]) -> Option<FrameHead> {
        let &[a, b, c, kind, flags, w, x, y, z, ..] = bytes else {
            return None;
        };
        Some(FrameHead {
            length: u32::from_be_bytes([0, a, b, c]) as usize,
            kind,
            flags,
            // the reserved bit is ignored
            stream: u32::from_be_bytes([w & 0x7f, x, y, z]),
        })
    }

    /// Appends the header.
    #[inline]
    pub fn write(self, out: &mut Vec<u8>) {
        let [_, a, b, c] = (self.length as u32).to_be_bytes();
        let [w, x, y, z] = self.stream.to_be_bytes();
        out.extend_from_slice(&[a, b, c, self.kind, self.flags, w, x, y, z]);
    }

    /// Whether a flag is set.
    #[inline]
    pub fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame.
pub fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let length = payload.len();
    let head = FrameHead {
        length,
        kind,
        flags,
        stream,
    };
    head.write(out);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_was_written() {
        let head = FrameHead {
            length: 0x01_02_03,
            kind: kind::HEADERS,
            flags: 5,
            stream: 0x7fff_ffff,
        };
        let mut bytes = Vec::new();
        head.write(&mut bytes);
        assert_eq!(bytes.len(), HEAD_BYTES);
        assert_eq!(FrameHead::read(&bytes), Some(head));
        assert_eq!(FrameHead::read(&bytes[..8]), None);
        bytes[5] |= 0x80;
        assert_eq!(FrameHead::read(&bytes), Some(head), "the reserved bit");
    }
}
