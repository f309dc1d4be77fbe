//! Netlink messages as bytes: header, fixed part, attributes (linux/netlink.h, linux/rtnetlink.h).

use bypass_sys::kernel::Result;

/// Bytes of a message's header.
pub const HEADER: usize = 16;

/// A request under construction.
pub struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A request of this kind with its fixed part.
    pub fn new(kind: u16, flags: i32, fixed: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        bytes.extend(fixed);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Self { bytes }
    }

    /// Appends an attribute.
    pub fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        self.bytes.extend(((4 + value.len()) as u16).to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    /// The bytes to send under this sequence number.
    pub fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// A received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// NLMSG_… or RTM_….
    pub kind: u16,
    /// NLM_F_….
    pub flags: i32,
    /// Of the request to which it responds; 0 for a notification.
    pub sequence: u32,
    /// The bytes after the header.
    pub body: &'a [u8],
}

/// The messages of one datagram; a malformed one ends it with EPROTO.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Result<Message<'_>>> {
    core::iter::from_fn(move || {
        if bytes.len() < HEADER {
            return None;
        }
        let length = u32_at(bytes, 0) as usize;
        if length < HEADER || length > bytes.len() {
            bytes = &[];
            return Some(Err(libc::EPROTO));
        }
        let message = Message {
            kind: u16_at(bytes, 4),
            flags: i32::from(u16_at(bytes, 6)),
            sequence: u32_at(bytes, 8),
            body: &bytes[HEADER..length],
        };
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
        Some(Ok(message))
    })
}

/// The attributes after the fixed part: kind without its flag bits, and value. A malformed
/// attribute ends them.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    core::iter::from_fn(move || {
        let length = usize::from(u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?));
        if length < 4 || length > bytes.len() {
            return None;
        }
        let found = (u16_at(bytes, 2) & 0x3fff, &bytes[4..length]);
        bytes = &bytes[length.next_multiple_of(4).min(bytes.len())..];
        Some(found)
    })
}

/// A number at an offset; 0 if the bytes end before it.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let four = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    four.map_or(0, u32::from_ne_bytes)
}

/// A number at an offset; 0 if the bytes end before it.
pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let two = bytes.get(at..at + 2).and_then(|two| two.try_into().ok());
    two.map_or(0, u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_as_it_was_written() {
        let bytes = Request::new(26, libc::NLM_F_DUMP, &[1, 2, 3, 4, 5])
            .attribute(7, b"abc")
            .attribute(9, &[])
            .finish(11);
        let found: Vec<_> = messages(&bytes).collect();
        let [Ok(message)] = found[..] else {
            panic!("{found:?}")
        };
        assert_eq!((message.kind, message.sequence), (26, 11));
        assert_eq!(&message.body[..5], [1, 2, 3, 4, 5]);
        let found: Vec<_> = attributes(&message.body[8..]).collect();
        assert_eq!(found, [(7, &b"abc"[..]), (9, &[][..])]);
    }

    #[test]
    fn bytes_of_any_kind_end() {
        let mut state = 1u64;
        for length in 0..600 {
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                    (state >> 60) as u8
                })
                .collect();
            assert!(messages(&bytes).count() <= length);
            assert!(attributes(&bytes).count() <= length);
        }
    }
}
