//! The fast path: an answer whose head is, `Date` apart, the same as the one before it.
//!
//! All bytes of the head are compared, so an answer of equal size but other framing cannot pass.
//! Only the value of `Date` is left out; a line end inside it would be the one way to be fooled,
//! so it is looked for.

use crate::head::{Framing, Head};
use crate::response::Done;
use alloc::vec::Vec;

/// Longest head that is kept as a template; longer ones take the full path.
const TEMPLATE_MAX_BYTES: usize = 2048;

/// The last complete head and what it meant.
#[derive(Debug)]
pub struct Template {
    head: Vec<u8>,
    date_start: usize,
    date_end: usize,
    done: Done,
}

/// All bytes are looked at, without a way out between, so that many are compared at once: a date
/// has 29 of them and no line end.
#[inline]
fn has_line_end(bytes: &[u8]) -> bool {
    bytes
        .iter()
        .fold(false, |seen, byte| seen | (*byte == b'\n'))
}

impl Default for Template {
    fn default() -> Self {
        let done = Done {
            status: 0,
            keep_alive: true,
            body_bytes: 0,
            tolerated: false,
        };
        Template {
            head: Vec::new(),
            date_start: 0,
            date_end: 0,
            done,
        }
    }
}

impl Template {
    /// Takes a head that the full parser has understood; heads without a known length clear it.
    pub fn learn(&mut self, head: &Head, bytes: &[u8]) {
        self.head.clear();
        let body_bytes = match head.framing {
            Framing::None => 0,
            // sums with the head's length must not overflow
            Framing::Length(length) if length <= u64::MAX / 2 => length,
            Framing::Length(_) | Framing::Chunked | Framing::UntilClose => return,
        };
        if head.tolerated || bytes.len() > TEMPLATE_MAX_BYTES {
            return;
        }
        self.head.extend_from_slice(bytes);
        (self.date_start, self.date_end) = head.date.unwrap_or((bytes.len(), bytes.len()));
        self.done = Done {
            status: head.status,
            keep_alive: head.keep_alive,
            body_bytes,
            tolerated: false,
        };
    }

    /// If `input` begins with the known head: the length of the head and what the answer is.
    #[inline]
    pub fn recognise(&self, input: &[u8]) -> Option<(usize, Done)> {
        let len = self.head.len();
        if len == 0 || input.len() < len {
            return None;
        }
        let same = input[..self.date_start] == self.head[..self.date_start]
            && input[self.date_end..len] == self.head[self.date_end..]
            && !has_line_end(&input[self.date_start..self.date_end]);
        same.then_some((len, self.done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::parse;

    fn learned(text: &str) -> Template {
        let mut template = Template::default();
        let head = parse(text.as_bytes(), false, &mut |_, _| {})
            .expect("ok")
            .expect("whole");
        template.learn(&head, &text.as_bytes()[..head.len]);
        template
    }

    #[test]
    fn recognises_the_same_head_with_another_date() {
        let template = learned("HTTP/1.1 200 OK\r\nDate: Sat 1\r\nContent-Length: 5\r\n\r\n");
        let other = b"HTTP/1.1 200 OK\r\nDate: Sun 2\r\nContent-Length: 5\r\n\r\nhello";
        let (len, done) = template.recognise(other).expect("same head");
        assert_eq!((len, done.body_bytes), (other.len() - 5, 5));
    }

    #[test]
    fn another_length_of_equal_size_is_another_head() {
        let template = learned("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
        assert!(template
            .recognise(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n")
            .is_none());
        assert!(template
            .recognise(b"HTTP/1.1 500 OK\r\nContent-Length: 5\r\n\r\n")
            .is_none());
        assert!(template
            .recognise(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r")
            .is_none());
    }

    #[test]
    fn a_field_hidden_in_the_date_is_not_overlooked() {
        let template =
            learned("HTTP/1.1 200 OK\r\nDate: aaaaaaaaaaaaaaaaaaaaa\r\nContent-Length: 5\r\n\r\n");
        let hidden =
            b"HTTP/1.1 200 OK\r\nDate: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\n";
        assert!(template.recognise(hidden).is_none());
    }

    #[test]
    fn unknown_lengths_are_not_learned() {
        let template = learned("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        let again = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(template.recognise(again).is_none());
    }
}
