//! The head of a response: status line, header fields, and what they say about the body.
//!
//! Tolerated because real servers send it: bare LF, folded header lines (RFC 9112, 5.2), the coding
//! "identity".
//! Refused because two readers would disagree about where the answer ends: two different
//! Content-Length values, an invalid length, a space before the colon.

use alloc::vec::Vec;

/// Longest head, and longest trailers, that the reader takes: curl's limit. wrk refuses heads of more than
/// 80 KiB. A server that sends more is broken or hostile.
pub const HEAD_MAX_BYTES: usize = 300 * 1024;

/// Why a response is malformed. Each reason is counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The first line is not a status line of HTTP/1.
    StatusLine,
    /// A header line without a name or a colon, or a control byte in it.
    Header,
    /// Content-Length is invalid, or two of them differ.
    Length,
    /// A chunk's size line or its end is wrong.
    Chunk,
    /// The head, or what follows the last chunk, is longer than [`HEAD_MAX_BYTES`].
    TooLong,
    /// The connection ended inside a response.
    EarlyEof,
    /// Bytes arrived without a request.
    Unasked,
    /// 101 Switching Protocols without a request for it.
    Upgrade,
}

impl Malformed {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Malformed; 8] = [
        Malformed::StatusLine,
        Malformed::Header,
        Malformed::Length,
        Malformed::Chunk,
        Malformed::TooLong,
        Malformed::EarlyEof,
        Malformed::Unasked,
        Malformed::Upgrade,
    ];

    /// The name used in reports.
    pub fn name(self) -> &'static str {
        match self {
            Malformed::StatusLine => "status_line",
            Malformed::Header => "header",
            Malformed::Length => "length",
            Malformed::Chunk => "chunk",
            Malformed::TooLong => "too_long",
            Malformed::EarlyEof => "early_eof",
            Malformed::Unasked => "unasked",
            Malformed::Upgrade => "upgrade",
        }
    }
}

/// How to find the end of the body (RFC 9112, 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body: HEAD, 1xx, 204, 304.
    None,
    /// Exactly so many bytes.
    Length(u64),
    /// Chunked coding.
    Chunked,
    /// All bytes until the server closes.
    UntilClose,
}

/// The contents of a complete head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the head, the empty line included.
    pub len: usize,
    /// Status code, 100 to 999.
    pub status: u16,
    /// How the body ends.
    pub framing: Framing,
    /// Whether the connection may carry another request.
    pub keep_alive: bool,
    /// Position of the value of `Date`, for the template.
    pub date: Option<(usize, usize)>,
    /// The head has a form that is tolerated but incorrect.
    pub tolerated: bool,
}

/// Parses a head if `input` holds all of it. `each` sees every field of a final answer, names as
/// received.
pub fn parse(
    input: &[u8],
    no_body: bool,
    each: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<Option<Head>, Malformed> {
    parse_on(input, 0, no_body, each)
}

/// As [`parse`], after the first `searched` bytes were tried and held no whole head: a head that comes
/// byte by byte is not read from its start each time.
pub fn parse_on(
    input: &[u8],
    searched: usize,
    no_body: bool,
    each: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<Option<Head>, Malformed> {
    let version_minor = check_start(input)?;
    let end = find_end(input, searched);
    if end.unwrap_or(input.len()) > HEAD_MAX_BYTES {
        return Err(Malformed::TooLong);
    }
    let Some(len) = end else {
        return Ok(None);
    };
    let minor = version_minor.ok_or(Malformed::StatusLine)?;
    let mut lines = Lines {
        rest: &input[..len],
        offset: 0,
        bare_lf: false,
    };
    let first = lines.next().ok_or(Malformed::StatusLine)?;
    let status = parse_status(first.1)?;
    let mut fields = Fields::default();
    let mut show = |name: &[u8], value: &[u8]| {
        if status >= 200 {
            each(name, value);
        }
    };
    while let Some((offset, line)) = lines.next() {
        if line.is_empty() {
            break;
        }
        match lines.unfold(line) {
            Some(joined) => {
                fields.tolerated = true;
                fields.take(offset, &joined, &mut show)?;
            }
            None => fields.take(offset, line, &mut show)?,
        }
    }
    let framing = fields.framing(status, no_body);
    let keep_alive = fields.keep_alive(minor) && framing != Framing::UntilClose;
    let tolerated = fields.tolerated || lines.bare_lf;
    Ok(Some(Head {
        len,
        status,
        framing,
        keep_alive,
        date: fields.date,
        tolerated,
    }))
}

/// Fails as soon as the first bytes cannot be a status line; returns the minor version once it is
/// known.
fn check_start(input: &[u8]) -> Result<Option<u8>, Malformed> {
    const START: &[u8] = b"HTTP/1.";
    let known = input.len().min(START.len());
    if input[..known] != START[..known] {
        return Err(Malformed::StatusLine);
    }
    match input.get(START.len()) {
        None => Ok(None),
        Some(digit @ b'0'..=b'9') => Ok(Some(digit - b'0')),
        Some(_) => Err(Malformed::StatusLine),
    }
}

/// The length of the head: up to and including the first empty line, which does not end within the
/// first `searched` bytes.
fn find_end(input: &[u8], searched: usize) -> Option<usize> {
    // it is decided of a line end by the two bytes behind it
    let mut from = searched.saturating_sub(2).min(input.len());
    while let Some(found) = input[from..].iter().position(|&byte| byte == b'\n') {
        let after = from + found + 1;
        match &input[after..] {
            [b'\n', ..] => return Some(after + 1),
            [b'\r', b'\n', ..] => return Some(after + 2),
            _ => from = after,
        }
    }
    None
}

struct Lines<'a> {
    rest: &'a [u8],
    offset: usize,
    bare_lf: bool,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<(usize, &'a [u8])> {
        let end = self.rest.iter().position(|&byte| byte == b'\n')?;
        let start = self.offset;
        let mut line = &self.rest[..end];
        match line.last() {
            Some(b'\r') => line = &line[..end - 1],
            _ => self.bare_lf = true,
        }
        self.offset += end + 1;
        self.rest = &self.rest[end + 1..];
        Some((start, line))
    }

    /// The line with the lines that are folded onto it (RFC 9112, 5.2); nothing if there are none.
    fn unfold(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        let is_folded = |rest: &[u8]| matches!(rest.first(), Some(b' ' | b'\t'));
        if !is_folded(self.rest) {
            return None;
        }
        let mut joined = line.to_vec();
        while is_folded(self.rest) {
            let (_, more) = self.next()?;
            joined.extend_from_slice(b"  ");
            joined.extend_from_slice(more);
        }
        Some(joined)
    }
}

fn parse_status(line: &[u8]) -> Result<u16, Malformed> {
    // "HTTP/1.x SSS" and then nothing, or a blank and the reason; more blanks than one as under wrk
    let rest = line.get(8..).unwrap_or_default();
    let blanks = rest.iter().take_while(|byte| **byte == b' ').count();
    match &rest[blanks..] {
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..]
            if blanks > 0 && (rest.is_empty() || rest[0] == b' ') =>
        {
            let digit = |byte: &u8| u16::from(byte - b'0');
            Ok(digit(a) * 100 + digit(b) * 10 + digit(c))
        }
        _ => Err(Malformed::StatusLine),
    }
}

/// The meaning of the fields so far for body and connection.
#[derive(Default)]
struct Fields {
    length: Option<u64>,
    chunked: bool,
    coded: bool,
    close: bool,
    stays: bool,
    date: Option<(usize, usize)>,
    tolerated: bool,
}

impl Fields {
    fn take(
        &mut self,
        offset: usize,
        line: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<(), Malformed> {
        if matches!(line[0], b' ' | b'\t') {
            // a folded line without a field before it
            return Err(Malformed::Header);
        }
        let colon = line
            .iter()
            .position(|&byte| byte == b':')
            .ok_or(Malformed::Header)?;
        let name = &line[..colon];
        if name.is_empty() || name.iter().any(|&byte| byte <= b' ' || byte == 0x7f) {
            return Err(Malformed::Header);
        }
        let value = trim(&line[colon + 1..]);
        if value.contains(&0) {
            return Err(Malformed::Header);
        }
        each(name, value);
        self.interpret(offset + colon + 1, line, name, value)
    }

    fn interpret(
        &mut self,
        value_offset: usize,
        line: &[u8],
        name: &[u8],
        value: &[u8],
    ) -> Result<(), Malformed> {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"date") => {
                let end = value_offset + (line.len() - name.len() - 1);
                self.date = Some((value_offset, end));
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.close |= has_token(value, b"close");
                self.stays |= has_token(value, b"keep-alive");
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.take_length(value)?,
            // "identity" is none, and of an earlier version of HTTP (RFC 2616, 3.6)
            17 if name.eq_ignore_ascii_case(b"transfer-encoding")
                && value.eq_ignore_ascii_case(b"identity") =>
            {
                self.tolerated = true;
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.coded = true;
                self.chunked = last_token_is_chunked(value);
            }
            _ => {}
        }
        Ok(())
    }

    fn take_length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        for part in value.split(|&byte| byte == b',') {
            let length = number(trim(part)).ok_or(Malformed::Length)?;
            if self.length.is_some_and(|known| known != length) {
                return Err(Malformed::Length);
            }
            self.length = Some(length);
        }
        Ok(())
    }

    fn framing(&mut self, status: u16, no_body: bool) -> Framing {
        if no_body || status < 200 || status == 204 || status == 304 {
            return Framing::None;
        }
        if self.coded {
            if self.length.is_some() {
                // RFC 9112, 6.3: the coding wins; do not trust such a connection further
                self.tolerated = true;
                self.close = true;
            }
            return if self.chunked {
                Framing::Chunked
            } else {
                Framing::UntilClose
            };
        }
        self.length.map_or(Framing::UntilClose, Framing::Length)
    }

    fn keep_alive(&self, version_minor: u8) -> bool {
        !self.close && (version_minor >= 1 || self.stays)
    }
}

fn has_token(value: &[u8], token: &[u8]) -> bool {
    value
        .split(|&byte| byte == b',')
        .any(|part| trim(part).eq_ignore_ascii_case(token))
}

fn last_token_is_chunked(value: &[u8]) -> bool {
    value
        .rsplit(|&byte| byte == b',')
        .next()
        .is_some_and(|last| trim(last).eq_ignore_ascii_case(b"chunked"))
}

/// A decimal number that fits, with nothing around it.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, &byte| {
        if !byte.is_ascii_digit() {
            return None;
        }
        sum.checked_mul(10)?.checked_add(u64::from(byte - b'0'))
    })
}

/// `value` without the blanks and tabs around it.
pub fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = value {
        value = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Head>, Malformed> {
        parse(text.as_bytes(), false, &mut |_, _| {})
    }

    fn whole(text: &str) -> Head {
        read(text).expect("well formed").expect("complete")
    }

    #[test]
    fn reads_status_length_and_date() {
        let text = "HTTP/1.1 200 OK\r\nDate: Sat, 21\r\nContent-Length: 12\r\n\r\n";
        let head = whole(text);
        assert_eq!((head.status, head.framing), (200, Framing::Length(12)));
        assert_eq!(head.len, text.len());
        let (from, to) = head.date.expect("a date");
        assert_eq!(&text[from..to], " Sat, 21");
        assert!(head.keep_alive && !head.tolerated);
    }

    #[test]
    fn every_split_point_waits_for_the_rest() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(read(&text[..end]), Ok(None), "{end}");
            let on = parse_on(text.as_bytes(), end, false, &mut |_, _| {});
            assert_eq!(on, read(text), "searched up to {end}");
        }
    }

    #[test]
    fn statuses_without_a_body_have_none() {
        for status in ["204", "304", "100"] {
            let head = whole(&format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\n"));
            assert_eq!(head.framing, Framing::None);
        }
        let head = parse(
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            true,
            &mut |_, _| {},
        );
        assert_eq!(head.expect("ok").expect("whole").framing, Framing::None);
    }

    #[test]
    fn chunked_beats_length_and_ends_the_connection() {
        let head = whole(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n",
        );
        assert_eq!(head.framing, Framing::Chunked);
        assert!(!head.keep_alive && head.tolerated);
    }

    #[test]
    fn identity_leaves_a_body_as_it_is() {
        let head =
            whole("HTTP/1.1 200 OK\r\nTransfer-Encoding: Identity\r\nContent-Length: 5\r\n\r\n");
        assert_eq!(head.framing, Framing::Length(5));
        assert!(head.keep_alive && head.tolerated);
        let head = whole("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n");
        assert_eq!(head.framing, Framing::UntilClose);
        let both =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n";
        assert_eq!(whole(both).framing, Framing::Chunked);
    }

    #[test]
    fn without_length_the_body_ends_with_the_connection() {
        let head = whole("HTTP/1.1 200\r\n\r\n");
        assert_eq!(head.framing, Framing::UntilClose);
        assert!(!head.keep_alive);
    }

    #[test]
    fn keep_alive_follows_version_and_field() {
        assert!(!whole("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n").keep_alive);
        let stays = "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n";
        assert!(whole(stays).keep_alive);
        let ends = "HTTP/1.1 200 OK\r\nconnection: x, CLOSE\r\nContent-Length: 0\r\n\r\n";
        assert!(!whole(ends).keep_alive);
    }

    #[test]
    fn tolerates_bare_line_feeds_and_folding() {
        let head = whole("HTTP/1.1 200 OK\nX: a\n b\nContent-Length: 3\n\n");
        assert_eq!(head.framing, Framing::Length(3));
        assert!(head.tolerated);
    }

    #[test]
    fn a_folded_field_means_what_it_means_on_one_line() {
        let head = whole("HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n chunked\r\n\r\n");
        assert_eq!(head.framing, Framing::Chunked);
        let head = whole("HTTP/1.1 200 OK\r\nContent-Length:\r\n\t 5\r\n\r\n");
        assert_eq!(head.framing, Framing::Length(5));
        assert!(head.tolerated);
        let two = read("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n 2\r\n\r\n");
        assert_eq!(two, Err(Malformed::Length));
        let mut seen = Vec::new();
        let text = b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n";
        let each = &mut |name: &[u8], value: &[u8]| seen.push((name.to_vec(), value.to_vec()));
        parse(text, false, each).expect("well formed");
        assert_eq!(seen[0], (b"X".to_vec(), b"a   b".to_vec()));
    }

    #[test]
    fn fields_of_an_interim_response_are_not_shown() {
        let mut seen = 0;
        let text = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
        let head = parse(text, false, &mut |_, _| seen += 1).expect("well formed");
        assert_eq!((head.expect("whole").status, seen), (103, 0));
    }

    #[test]
    fn names_each_malformation() {
        let table = [
            ("HTTQ", Malformed::StatusLine),
            ("HTTP/2.0 200 OK\r\n\r\n", Malformed::StatusLine),
            ("HTTP/1.1 20 OK\r\n\r\n", Malformed::StatusLine),
            ("HTTP/1.1200 OK\r\n\r\n", Malformed::StatusLine),
            ("HTTP/1.1\r\n\r\n", Malformed::StatusLine),
            ("HTTP/1.1 2000 OK\r\n\r\n", Malformed::StatusLine),
            ("HTTP/1.1 200 OK\r\nnocolon\r\n\r\n", Malformed::Header),
            ("HTTP/1.1 200 OK\r\nName : x\r\n\r\n", Malformed::Header),
            ("HTTP/1.1 200 OK\r\n folded\r\n\r\n", Malformed::Header),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
                Malformed::Length,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\n",
                Malformed::Length,
            ),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
                Malformed::Length,
            ),
        ];
        for (text, class) in table {
            assert_eq!(read(text), Err(class), "{text:?}");
        }
    }

    #[test]
    fn a_head_is_too_long_in_whatever_pieces_it_comes() {
        let (start, end) = ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: ", "\r\n\r\n");
        let room = HEAD_MAX_BYTES - start.len() - end.len();
        let longest = format!("{start}{}{end}", "y".repeat(room));
        assert_eq!(whole(&longest).len, HEAD_MAX_BYTES);
        assert_eq!(read(&longest[..HEAD_MAX_BYTES - 1]), Ok(None));
        let longer = format!("{start}{}{end}", "y".repeat(room + 1));
        assert_eq!(read(&longer), Err(Malformed::TooLong), "with its end");
        let cut = longer.len() - end.len();
        assert_eq!(read(&longer[..cut]), Ok(None));
        let more = format!("{}yyyyy", &longer[..cut]);
        let on = parse_on(more.as_bytes(), cut, false, &mut |_, _| {});
        assert_eq!(on, Err(Malformed::TooLong), "without its end");
    }
}
