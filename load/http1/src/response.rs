//! Parses one response after the other from a stream of bytes, resumable at any byte.
//!
//! The reader has no buffer. The caller keeps bytes that it does not consume (a head or a line
//! without its end) and passes them again with more bytes after them.

use crate::chunked::Chunked;
use crate::head::{self, Framing, Head, Malformed};
use crate::sink::Sink;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Fixed(u64),
    Chunked(Chunked),
    UntilClose,
}

/// A complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Status code.
    pub status: u16,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
    /// Length of the body.
    pub body_bytes: u64,
    /// The response has a form that is tolerated but incorrect.
    pub tolerated: bool,
}

/// The progress of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The response is incomplete; so many bytes were consumed.
    More(usize),
    /// The response is complete; so many bytes were consumed.
    Done(usize, Done),
}

/// Reads the responses of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Parser {
    state: State,
    done: Done,
    /// So many bytes that the caller keeps were searched for the end of a head or a line.
    searched: usize,
}

impl Default for Parser {
    fn default() -> Self {
        let done = Done {
            status: 0,
            keep_alive: true,
            body_bytes: 0,
            tolerated: false,
        };
        Parser {
            state: State::Head,
            done,
            searched: 0,
        }
    }
}

impl Parser {
    /// Whether the next byte starts a response.
    #[inline]
    pub fn at_start(&self) -> bool {
        self.state == State::Head
    }

    /// Whether the current body ends only with the connection.
    pub fn lasts_until_close(&self) -> bool {
        self.state == State::UntilClose
    }

    /// Continues a response whose head the template recognised, with `left` bytes of body still to
    /// come.
    pub fn resume_body(&mut self, done: Done, left: u64) {
        self.done = done;
        self.state = State::Fixed(left);
    }

    /// Bytes of the body that are still to come, where their number is known.
    #[inline]
    pub fn body_left(&self) -> u64 {
        match self.state {
            State::Fixed(left) => left,
            _ => 0,
        }
    }

    /// So many of them have come and were dropped unseen; the response if these were the last.
    pub fn skip_body(&mut self, bytes: u64) -> Option<Done> {
        let State::Fixed(left) = &mut self.state else {
            return None;
        };
        *left = left.saturating_sub(bytes);
        self.done.body_bytes += bytes;
        (*left == 0).then(|| self.finish())
    }

    /// A reader that stands before the chunked body of a response whose head was recognised.
    pub fn before_chunks(done: Done) -> Parser {
        Parser {
            state: State::Chunked(Chunked::Size),
            done,
            searched: 0,
        }
    }

    /// Reads on. `no_body` means that the response is to a HEAD request. `seen` gets every complete
    /// head and its bytes.
    pub fn feed(
        &mut self,
        input: &[u8],
        no_body: bool,
        sink: &mut impl Sink,
        seen: &mut dyn FnMut(&Head, &[u8]),
    ) -> Result<Progress, Malformed> {
        let progress = self.feed_all(input, no_body, sink, seen)?;
        self.searched = match progress {
            Progress::More(used) => input.len() - used,
            Progress::Done(..) => 0,
        };
        Ok(progress)
    }

    fn feed_all(
        &mut self,
        input: &[u8],
        no_body: bool,
        sink: &mut impl Sink,
        seen: &mut dyn FnMut(&Head, &[u8]),
    ) -> Result<Progress, Malformed> {
        let mut consumed = 0;
        while self.state == State::Head {
            let rest = &input[consumed..];
            if rest.is_empty() {
                return Ok(Progress::More(consumed));
            }
            let mut each = |name: &[u8], value: &[u8]| sink.header(name, value);
            let searched = core::mem::take(&mut self.searched);
            let parsed = head::parse_on(rest, searched, no_body, &mut each)?;
            let Some(head) = parsed else {
                return Ok(Progress::More(consumed));
            };
            consumed += head.len;
            if head.status == 101 {
                return Err(Malformed::Upgrade);
            }
            if head.status >= 200 {
                seen(&head, &rest[..head.len]);
                if self.enter_body(&head) {
                    return Ok(Progress::Done(consumed, self.finish()));
                }
            }
        }
        self.feed_body(input, consumed, sink)
    }

    /// The server has closed: valid for a body that lasts until then, an error inside anything
    /// else.
    pub fn end_of_stream(&mut self) -> Result<Done, Malformed> {
        match self.state {
            State::UntilClose => Ok(self.finish()),
            _ => Err(Malformed::EarlyEof),
        }
    }

    /// Takes over what the head says; true if the response is complete.
    fn enter_body(&mut self, head: &Head) -> bool {
        self.done = Done {
            status: head.status,
            keep_alive: head.keep_alive,
            body_bytes: 0,
            tolerated: head.tolerated,
        };
        self.state = match head.framing {
            Framing::None | Framing::Length(0) => return true,
            Framing::Length(length) => State::Fixed(length),
            Framing::Chunked => State::Chunked(Chunked::Size),
            Framing::UntilClose => State::UntilClose,
        };
        false
    }

    fn feed_body(
        &mut self,
        input: &[u8],
        mut consumed: usize,
        sink: &mut impl Sink,
    ) -> Result<Progress, Malformed> {
        let rest = &input[consumed..];
        match &mut self.state {
            State::Head => {}
            State::Fixed(left) => {
                let used = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                sink.body(&rest[..used]);
                *left -= used as u64;
                self.done.body_bytes += used as u64;
                consumed += used;
                if *left == 0 {
                    return Ok(Progress::Done(consumed, self.finish()));
                }
            }
            State::Chunked(chunked) => {
                let searched = core::mem::take(&mut self.searched);
                let fed = chunked.feed(rest, searched, sink)?;
                self.done.body_bytes += fed.body_bytes;
                consumed += fed.consumed;
                if fed.ended {
                    return Ok(Progress::Done(consumed, self.finish()));
                }
            }
            State::UntilClose => {
                sink.body(rest);
                self.done.body_bytes += rest.len() as u64;
                consumed += rest.len();
            }
        }
        Ok(Progress::More(consumed))
    }

    fn finish(&mut self) -> Done {
        self.state = State::Head;
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Ignore;
    use alloc::vec::Vec;

    /// Feeds `text` in two pieces, keeping unconsumed bytes, as a connection does.
    fn in_pieces(text: &[u8], cut: usize) -> Result<Vec<Done>, Malformed> {
        in_all(&[&text[..cut], &text[cut..]])
    }

    fn in_all(pieces: &[&[u8]]) -> Result<Vec<Done>, Malformed> {
        let mut parser = Parser::default();
        let mut kept: Vec<u8> = Vec::new();
        let mut answers = Vec::new();
        for piece in pieces {
            kept.extend_from_slice(piece);
            loop {
                let step = parser.feed(&kept, false, &mut Ignore, &mut |_, _| {})?;
                let (Progress::More(used) | Progress::Done(used, _)) = step;
                kept.drain(..used);
                match step {
                    Progress::Done(_, done) => answers.push(done),
                    Progress::More(_) => break,
                }
            }
        }
        Ok(answers)
    }

    #[test]
    fn every_split_point_gives_the_same_responses() {
        let text =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
            HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: x\r\n\r\n\
            HTTP/1.1 204 None\r\n\r\n";
        for cut in 0..=text.len() {
            let answers = in_pieces(text, cut).expect("well formed");
            let short: Vec<_> = answers.iter().map(|d| (d.status, d.body_bytes)).collect();
            assert_eq!(short, [(200, 5), (404, 3), (204, 0)], "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(in_all(&bytes), in_pieces(text, 0), "byte by byte");
    }

    #[test]
    fn no_byte_is_searched_twice() {
        let mut parser = Parser::default();
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        for end in 1..head.len() {
            let step = parser.feed(&head[..end], false, &mut Ignore, &mut |_, _| {});
            assert_eq!((step, parser.searched), (Ok(Progress::More(0)), end));
        }
        let step = parser.feed(head, false, &mut Ignore, &mut |_, _| {});
        assert!(matches!(step, Ok(Progress::Done(..))));
        assert_eq!(parser.searched, 0);
    }

    #[test]
    fn the_end_of_the_stream_ends_only_an_open_body() {
        let mut parser = Parser::default();
        let head = b"HTTP/1.1 200 OK\r\n\r\nabc";
        parser
            .feed(head, false, &mut Ignore, &mut |_, _| {})
            .expect("well formed");
        assert_eq!(parser.end_of_stream().map(|done| done.body_bytes), Ok(3));
        let mut parser = Parser::default();
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
        parser
            .feed(head, false, &mut Ignore, &mut |_, _| {})
            .expect("well formed");
        assert_eq!(parser.end_of_stream(), Err(Malformed::EarlyEof));
    }

    #[test]
    fn a_body_may_be_dropped_unseen() {
        let mut parser = Parser::default();
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
        parser
            .feed(head, false, &mut Ignore, &mut |_, _| {})
            .expect("well formed");
        assert_eq!((parser.body_left(), parser.skip_body(4)), (6, None));
        let done = parser.skip_body(2).expect("the last ones");
        assert_eq!((done.body_bytes, parser.body_left()), (9, 0));
        assert!(parser.at_start() && parser.skip_body(1).is_none());
    }

    #[test]
    fn switching_protocols_is_an_error() {
        assert_eq!(
            in_pieces(b"HTTP/1.1 101 Up\r\n\r\n", 0),
            Err(Malformed::Upgrade)
        );
    }

    #[test]
    fn a_sink_sees_fields_trailers_and_body() {
        #[derive(Default)]
        struct Keep(Vec<u8>);
        impl Sink for Keep {
            fn header(&mut self, name: &[u8], value: &[u8]) {
                self.0.extend_from_slice(name);
                self.0.push(b'=');
                self.0.extend_from_slice(value);
                self.0.push(b' ');
            }
            fn body(&mut self, piece: &[u8]) {
                self.0.extend_from_slice(piece);
            }
        }
        let text =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nT: x\r\n\r\n";
        let mut keep = Keep::default();
        let step = Parser::default().feed(text, false, &mut keep, &mut |_, _| {});
        assert!(matches!(step, Ok(Progress::Done(..))));
        assert_eq!(keep.0, b"Transfer-Encoding=chunked abT=x ");
    }
}
