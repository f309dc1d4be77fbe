//! Frames (RFC 9114, 7): the reader of a stream of them.

use crate::fault::Fault;
use crate::varint;
use alloc::vec::Vec;
use load_http2::hpack::FIELDS_MAX;

/// Types of frames.
pub mod kind {
    /// Bytes of a body.
    pub const DATA: u64 = 0;
    /// A header block.
    pub const HEADERS: u64 = 1;
    /// A push will not come.
    pub const CANCEL_PUSH: u64 = 3;
    /// The limits of a side.
    pub const SETTINGS: u64 = 4;
    /// A push, which this client does not allow.
    pub const PUSH_PROMISE: u64 = 5;
    /// The connection will end soon.
    pub const GOAWAY: u64 = 7;
    /// How many pushes a client allows.
    pub const MAX_PUSH_ID: u64 = 13;

    /// Whether it is one of HTTP/2 that HTTP/3 has not (RFC 9114, 7.2.8).
    pub fn is_of_http2(kind: u64) -> bool {
        matches!(kind, 2 | 6 | 8 | 9)
    }
}

/// Longest payload that is looked at whole, as in HTTP/1 and HTTP/2.
pub const WHOLE_MAX: u64 = FIELDS_MAX as u64;

/// Most bytes of a frame's type and length.
const HEAD_MAX: usize = 2 * varint::BYTES_MAX;

/// What is wanted of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// All of it at once.
    Whole,
    /// Each piece as it comes.
    Pieces,
    /// Nothing.
    Nothing,
}

/// A reader of frames, for one kind of stream.
pub trait Visitor {
    /// A frame begins.
    fn begins(&mut self, kind: u64) -> Result<Want, Fault>;

    /// A piece of a payload.
    fn piece(&mut self, _bytes: &[u8]) {}

    /// A whole payload.
    fn whole(&mut self, kind: u64, payload: &[u8]) -> Result<(), Fault>;
}

/// The reader's position.
#[derive(Clone, Copy, Debug)]
enum Reading {
    /// In a frame's type or length.
    Head,
    /// In a payload, of which so many bytes are left.
    Payload { kind: u64, want: Want, left: u64 },
}

/// Reads the frames of one stream.
#[derive(Debug)]
pub struct Frames {
    reading: Reading,
    /// Bytes of a head, or of a payload that is wanted whole.
    kept: Vec<u8>,
}

impl Frames {
    /// At the start of a stream.
    pub const fn new() -> Frames {
        Frames {
            reading: Reading::Head,
            kept: Vec::new(),
        }
    }

    /// Whether a stream may end here.
    pub fn is_between(&self) -> bool {
        matches!(self.reading, Reading::Head) && self.kept.is_empty()
    }

    /// Reads bytes.
    pub fn feed(&mut self, mut bytes: &[u8], visitor: &mut impl Visitor) -> Result<(), Fault> {
        loop {
            let Reading::Payload { kind, want, left } = self.reading else {
                let Some((kind, length)) = self.head(&mut bytes) else {
                    return Ok(());
                };
                let want = visitor.begins(kind)?;
                if want == Want::Whole && length > WHOLE_MAX {
                    return Err(Fault::ExcessiveLoad);
                }
                self.reading = Reading::Payload {
                    kind,
                    want,
                    left: length,
                };
                continue;
            };
            let here = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
            let (piece, rest) = bytes.split_at(here);
            let left = left - here as u64;
            (bytes, self.reading) = (rest, Reading::Payload { kind, want, left });
            match want {
                Want::Pieces if here > 0 => visitor.piece(piece),
                Want::Whole if left > 0 => self.kept.extend_from_slice(piece),
                Want::Whole if self.kept.is_empty() => visitor.whole(kind, piece)?,
                Want::Whole => {
                    self.kept.extend_from_slice(piece);
                    let whole = core::mem::take(&mut self.kept);
                    visitor.whole(kind, &whole)?;
                }
                Want::Pieces | Want::Nothing => {}
            }
            if left > 0 {
                return Ok(());
            }
            self.reading = Reading::Head;
        }
    }

    /// Takes a frame's type and length from the bytes, if all of both is there.
    fn head(&mut self, bytes: &mut &[u8]) -> Option<(u64, u64)> {
        let before = self.kept.len();
        let mut head = [0; HEAD_MAX];
        let end = HEAD_MAX.min(before + bytes.len());
        head[..before].copy_from_slice(&self.kept);
        head[before..end].copy_from_slice(&bytes[..end - before]);
        let head = &head[..end];
        let both = varint::read(head).and_then(|(kind, first)| {
            let (length, second) = varint::read(&head[first..])?;
            Some((kind, length, first + second))
        });
        match both {
            Some((kind, length, used)) => {
                *bytes = &bytes[used - before..];
                self.kept.clear();
                Some((kind, length))
            }
            None => {
                self.kept.extend_from_slice(bytes);
                *bytes = &[];
                None
            }
        }
    }
}
