//! Chunked transfer coding, resumable at every byte (RFC 9112, 7.1).
//!
//! Lines (sizes, trailer fields) are taken whole: until a line's end has arrived the line is not
//! consumed, and the caller keeps the bytes. Data is consumed as it comes.

use crate::head::{trim, Malformed, HEAD_MAX_BYTES};
use crate::sink::Sink;

/// Longest size line with its extensions; the extensions have no meaning here.
const SIZE_LINE_MAX_BYTES: usize = 4096;

/// The reader's position in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunked {
    /// Before a chunk's size line.
    Size,
    /// Inside a chunk, with so many bytes left.
    Data(u64),
    /// Before the line end that closes a chunk.
    DataEnd,
    /// In the trailer section, of which so many bytes have come.
    Trailer(usize),
}

/// The result of one call to [`Chunked::feed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Bytes taken from the input.
    pub consumed: usize,
    /// Bytes of the body among them.
    pub body_bytes: u64,
    /// The last chunk and the trailers have been read.
    pub ended: bool,
}

impl Chunked {
    /// Reads as far as `input` goes. Its first `searched` bytes were tried and hold no line end.
    pub fn feed(
        &mut self,
        input: &[u8],
        searched: usize,
        sink: &mut impl Sink,
    ) -> Result<Fed, Malformed> {
        let mut fed = Fed {
            consumed: 0,
            body_bytes: 0,
            ended: false,
        };
        while !fed.ended {
            let rest = &input[fed.consumed..];
            let searched = searched.saturating_sub(fed.consumed);
            let used = match *self {
                Chunked::Size => self.size_line(rest, searched)?,
                Chunked::Data(left) => self.data(rest, left, sink, &mut fed),
                Chunked::DataEnd => self.data_end(rest)?,
                Chunked::Trailer(before) => {
                    let used = trailer_line(rest, searched, before, sink, &mut fed)?;
                    *self = Chunked::Trailer(before + used);
                    used
                }
            };
            if used == 0 {
                break;
            }
            fed.consumed += used;
        }
        Ok(fed)
    }

    fn size_line(&mut self, rest: &[u8], searched: usize) -> Result<usize, Malformed> {
        let line = take_line(rest, searched, SIZE_LINE_MAX_BYTES, Malformed::Chunk)?;
        let Some((line, used)) = line else {
            return Ok(0);
        };
        let digits = line.split(|&byte| byte == b';').next().unwrap_or(line);
        let size = hexadecimal(trim(digits)).ok_or(Malformed::Chunk)?;
        *self = if size == 0 {
            Chunked::Trailer(0)
        } else {
            Chunked::Data(size)
        };
        Ok(used)
    }

    fn data(&mut self, rest: &[u8], left: u64, sink: &mut impl Sink, fed: &mut Fed) -> usize {
        let used = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
        sink.body(&rest[..used]);
        fed.body_bytes += used as u64;
        let left = left - used as u64;
        *self = if left == 0 {
            Chunked::DataEnd
        } else {
            Chunked::Data(left)
        };
        used
    }

    fn data_end(&mut self, rest: &[u8]) -> Result<usize, Malformed> {
        let used = match rest {
            [] | [b'\r'] => return Ok(0),
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            _ => return Err(Malformed::Chunk),
        };
        *self = Chunked::Size;
        Ok(used)
    }
}

/// Takes a line of the trailers, of which `before` bytes have come: all of them together are bounded, as a
/// script may keep them.
fn trailer_line(
    rest: &[u8],
    searched: usize,
    before: usize,
    sink: &mut impl Sink,
    fed: &mut Fed,
) -> Result<usize, Malformed> {
    let room = HEAD_MAX_BYTES.saturating_sub(before);
    let line = take_line(rest, searched, room, Malformed::TooLong)?;
    let Some((line, used)) = line else {
        return Ok(0);
    };
    if line.is_empty() {
        fed.ended = true;
    } else {
        let colon = line
            .iter()
            .position(|&byte| byte == b':')
            .ok_or(Malformed::Header)?;
        sink.header(&line[..colon], trim(&line[colon + 1..]));
    }
    Ok(used)
}

/// The first line of `rest` without its end, which is not within the first `searched` bytes, and how
/// long it is with it.
fn take_line(
    rest: &[u8],
    searched: usize,
    max_bytes: usize,
    too_long: Malformed,
) -> Result<Option<(&[u8], usize)>, Malformed> {
    let searched = searched.min(rest.len());
    let within = &rest[searched..rest.len().min(max_bytes + 1).max(searched)];
    let found = within.iter().position(|&byte| byte == b'\n');
    let Some(end) = found.map(|at| searched + at) else {
        return if rest.len() > max_bytes {
            Err(too_long)
        } else {
            Ok(None)
        };
    };
    let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
    Ok(Some((line, end + 1)))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    if digits.is_empty() || digits.len() - zeros > 16 {
        return None;
    }
    digits[zeros..].iter().try_fold(0u64, |sum, &byte| {
        let digit = char::from(byte).to_digit(16)?;
        Some(sum << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Ignore;

    #[test]
    fn reads_chunks_extensions_and_trailers() {
        let text = b"4;a=b\r\nWiki\r\n00005\r\npedia\r\n0\r\nX: y\r\n\r\nrest";
        let fed = Chunked::Size
            .feed(text, 0, &mut Ignore)
            .expect("well formed");
        assert_eq!(
            fed,
            Fed {
                consumed: text.len() - 4,
                body_bytes: 9,
                ended: true
            }
        );
    }

    #[test]
    fn wrong_sizes_and_ends_are_malformed() {
        for text in [
            "x\r\n",
            "\r\n",
            "-1\r\n",
            "11111111111111111\r\n",
            "1\r\nab\r\n",
        ] {
            let fed = Chunked::Size.feed(text.as_bytes(), 0, &mut Ignore);
            assert_eq!(fed, Err(Malformed::Chunk), "{text:?}");
        }
    }

    #[test]
    fn a_size_may_begin_with_any_number_of_zeros() {
        let text = b"000000000000000000000005\r\nhello\r\n00000000000000000000\r\n\r\n";
        let fed = Chunked::Size.feed(text, 0, &mut Ignore);
        let fed = fed.expect("well formed");
        assert!(fed.ended && fed.body_bytes == 5 && fed.consumed == text.len());
    }

    #[test]
    fn a_size_line_without_end_is_bounded() {
        let fed = Chunked::Size.feed(&[b'0'; SIZE_LINE_MAX_BYTES + 1], 0, &mut Ignore);
        assert_eq!(fed, Err(Malformed::Chunk));
    }

    #[test]
    fn all_trailers_together_are_bounded() {
        let line = b"X-Trailer: y\r\n";
        let most = HEAD_MAX_BYTES / line.len();
        let mut body = Chunked::Size;
        body.feed(b"0\r\n", 0, &mut Ignore).expect("the last chunk");
        for number in 0..most {
            let fed = body.feed(line, 0, &mut Ignore).expect("within the bound");
            assert!(fed.consumed == line.len() && !fed.ended, "{number}");
        }
        assert_eq!(
            body.feed(line, 0, &mut Ignore),
            Err(Malformed::TooLong),
            "one more"
        );
    }
}
