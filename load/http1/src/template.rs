//! The fast path: a response whose head equals the previous one, except for values that vary.
//!
//! It compares all other bytes of the head, so a response of the same size with other framing
//! cannot pass. It skips the value of `Date`, and the values of fields that differed between two
//! heads of one size (ETag, request numbers, cookies), unless they define the end of the body. Only
//! a line end inside such a value could deceive it, so it rejects values with one.

use crate::head::{Framing, Head};
use crate::response::Done;
use alloc::vec::Vec;

/// Longest head that is kept as a template; longer ones take the full path.
const TEMPLATE_MAX_BYTES: usize = 2048;
/// Most values that are skipped.
const MASKS_MAX: usize = 8;
/// Fields that are always compared: they define the length of the body and whether the connection
/// stays open.
const FRAMING: [&[u8]; 3] = [b"content-length", b"transfer-encoding", b"connection"];

/// The last complete head and its meaning.
#[derive(Debug)]
pub struct Template {
    head: Vec<u8>,
    /// Positions of the skipped values, in order.
    masks: Vec<(usize, usize)>,
    done: Done,
    is_chunked: bool,
}

/// The contents of a recognised head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recognised {
    /// Length of the head.
    pub head_bytes: usize,
    /// The response; the length of a chunked body is not known yet.
    pub done: Done,
    /// Its body is chunked.
    pub is_chunked: bool,
}

/// Checks all bytes without an early exit, so that the compiler can compare many at once: a date
/// has 29 bytes and no line end.
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
            masks: Vec::new(),
            done,
            is_chunked: false,
        }
    }
}

impl Template {
    /// Learns a head that the full parser has accepted; a head without a known end clears the
    /// template.
    pub fn learn(&mut self, head: &Head, bytes: &[u8]) {
        let body_bytes = match head.framing {
            Framing::None | Framing::Chunked => 0,
            // sums with the head's length must not overflow
            Framing::Length(length) if length <= u64::MAX / 2 => length,
            Framing::Length(_) | Framing::UntilClose => return self.head.clear(),
        };
        if head.tolerated || bytes.len() > TEMPLATE_MAX_BYTES {
            return self.head.clear();
        }
        if !self.mask_differences(bytes) {
            self.masks.clear();
        }
        let is_masked = |date: &(usize, usize)| self.masks.iter().any(|mask| mask.1 == date.1);
        if let Some(date) = head.date.filter(|date| !is_masked(date)) {
            self.masks.push(date);
            self.masks.sort_unstable();
        }
        self.head.clear();
        self.head.extend_from_slice(bytes);
        self.is_chunked = head.framing == Framing::Chunked;
        self.done = Done {
            status: head.status,
            keep_alive: head.keep_alive,
            body_bytes,
            tolerated: false,
        };
    }

    /// Skips the values in which another head with the same fields and sizes differs; false for any
    /// other head.
    fn mask_differences(&mut self, bytes: &[u8]) -> bool {
        if self.head.len() != bytes.len() {
            return false;
        }
        let mut start = 0;
        for line in self.head.split_inclusive(|byte| *byte == b'\n') {
            let end = start + line.len();
            let other = &bytes[start..end];
            if line != other {
                let Some(value) = differing_value(line, other) else {
                    return false;
                };
                let mask = (start + value, end - 2);
                let is_new = !self.masks.iter().any(|known| known.1 == mask.1);
                if is_new && self.masks.len() == MASKS_MAX {
                    return false;
                }
                if is_new {
                    self.masks.push(mask);
                    self.masks.sort_unstable();
                }
            }
            start = end;
        }
        true
    }

    /// The response at the start of `input`, if it starts with the known head.
    #[inline]
    pub fn recognise(&self, input: &[u8]) -> Option<Recognised> {
        let len = self.head.len();
        if len == 0 || input.len() < len {
            return None;
        }
        let mut from = 0;
        for &(start, end) in &self.masks {
            if input[from..start] != self.head[from..start] || has_line_end(&input[start..end]) {
                return None;
            }
            from = end;
        }
        (input[from..len] == self.head[from..]).then_some(Recognised {
            head_bytes: len,
            done: self.done,
            is_chunked: self.is_chunked,
        })
    }
}

/// The position of the value in a line in which two heads differ; nothing if they differ in more,
/// or if the field is always compared.
fn differing_value(line: &[u8], other: &[u8]) -> Option<usize> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let is_same_field = line[..=colon] == other[..=colon];
    let ends_alike = line.ends_with(b"\r\n") && other.ends_with(b"\r\n");
    let inner = other.len().saturating_sub(2);
    let is_one_line = colon < inner && !has_line_end(&other[..inner]);
    let decides = FRAMING
        .iter()
        .any(|name| line[..colon].eq_ignore_ascii_case(name));
    (is_same_field && ends_alike && is_one_line && !decides).then_some(colon + 1)
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
        let known = template.recognise(other).expect("same head");
        assert_eq!(
            (known.head_bytes, known.done.body_bytes),
            (other.len() - 5, 5)
        );
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
    fn a_field_hidden_in_the_date_is_detected() {
        let template =
            learned("HTTP/1.1 200 OK\r\nDate: aaaaaaaaaaaaaaaaaaaaa\r\nContent-Length: 5\r\n\r\n");
        let hidden =
            b"HTTP/1.1 200 OK\r\nDate: a\r\nConnection: close\r\nContent-Length: 5\r\n\r\n";
        assert!(template.recognise(hidden).is_none());
    }

    #[test]
    fn a_body_that_lasts_until_the_end_is_not_learned() {
        let template = learned("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        assert_eq!(
            template.recognise(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"),
            None
        );
    }

    #[test]
    fn a_chunked_head_is_known_as_one() {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let known = learned(text).recognise(text.as_bytes()).expect("the same");
        assert!(known.is_chunked && known.head_bytes == text.len());
    }

    fn learn(template: &mut Template, text: &str) {
        let head = parse(text.as_bytes(), false, &mut |_, _| {})
            .expect("ok")
            .expect("whole");
        template.learn(&head, &text.as_bytes()[..head.len]);
    }

    #[test]
    fn values_that_vary_are_left_out_and_values_that_decide_are_not() {
        let head = |tag: &str, length: u32| {
            alloc::format!(
                "HTTP/1.1 200 OK\r\nETag: {tag}\r\nContent-Length: {length}\r\nX: 1\r\n\r\n"
            )
        };
        let mut template = learned(&head("aaa", 5));
        assert_eq!(template.recognise(head("bbb", 5).as_bytes()), None);
        learn(&mut template, &head("bbb", 5));
        assert!(template.recognise(head("ccc", 5).as_bytes()).is_some());
        assert_eq!(template.recognise(head("ccc", 6).as_bytes()), None);
        assert_eq!(template.recognise(head("c\nc", 5).as_bytes()), None);
        // another length is another template, and replaces the previous one
        learn(&mut template, &head("ddd", 7));
        assert_eq!(template.recognise(head("ddd", 5).as_bytes()), None);
        let known = template
            .recognise(head("ddd", 7).as_bytes())
            .expect("learned");
        assert_eq!(known.done.body_bytes, 7);
    }
}
