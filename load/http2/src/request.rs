//! Requests as header blocks, created once before the run from the texts that HTTP/1 sends.
//!
//! The server's decoder keeps the fields that all its requests share, from the first request of a
//! connection on; a later request is then a few octets and the fields in which it differs.

use crate::hpack::{self, DYNAMIC_FIRST, FIELD_OVERHEAD, TABLE_MAX};
use alloc::borrow::Cow;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Fields of an HTTP/1 connection (RFC 9113, 8.2.2), and fields that became pseudo-header fields.
const LEFT_OUT: [&str; 7] = [
    "connection",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

/// The bytes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The header block of the first request of a connection.
    pub first: Vec<u8>,
    /// The header block of all others.
    pub later: Vec<u8>,
    /// The header block for a server without a table.
    pub plain: Vec<u8>,
    /// The body; it may be empty.
    pub body: Arc<[u8]>,
    /// It is a HEAD request, whose response has no body.
    pub is_head: bool,
}

/// Name and value.
pub type Field = (String, String);

/// A request in its parts.
pub struct Parts<'t> {
    /// Its fields, pseudo-header fields first.
    pub fields: Vec<Field>,
    /// Its body; it may be empty.
    pub body: Cow<'t, [u8]>,
}

impl Parts<'_> {
    /// Whether it is a HEAD request, whose response has no body.
    pub fn is_head(&self) -> bool {
        let mut fields = self.fields.iter();
        fields.any(|(name, value)| name == ":method" && value == "HEAD")
    }
}

/// Converts the HTTP/1 texts of all requests to one server for HTTP/2. Fails if one is invalid.
pub fn encode_all<'t>(texts: impl Iterator<Item = &'t [u8]>, scheme: &str) -> Option<Vec<Encoded>> {
    let all: Option<Vec<Parts>> = texts.map(|text| parts(text, scheme)).collect();
    let all = all?;
    let common = common(&all);
    Some(all.iter().map(|parts| encode(parts, &common)).collect())
}

/// Converts one HTTP/1 text for HTTP/2, without the table.
pub fn encode_one(text: &[u8], scheme: &str) -> Option<Encoded> {
    parts(text, scheme).map(|parts| encode(&parts, &[]))
}

/// The fields that all requests share and that are worth a table entry, as far as they fit.
fn common(all: &[Parts]) -> Vec<Field> {
    let Some(first) = all.first() else {
        return Vec::new();
    };
    let mut room = TABLE_MAX;
    let shared = first.fields.iter().filter(|field| {
        let (name, value) = (field.0.as_bytes(), field.1.as_bytes());
        let size = name.len() + value.len() + FIELD_OVERHEAD;
        let fits = crate::static_table::index_of(name, value).is_none() && size <= room;
        let is_common = all.iter().all(|parts| parts.fields.contains(field));
        if fits && is_common {
            room -= size;
        }
        fits && is_common
    });
    shared.cloned().collect()
}

fn encode(parts: &Parts, common: &[Field]) -> Encoded {
    let (mut first, mut later, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    for field in &parts.fields {
        let (name, value) = (field.0.as_bytes(), field.1.as_bytes());
        hpack::put_plain(name, value, &mut plain);
        match common.iter().position(|known| known == field) {
            Some(place) => {
                hpack::put_remembered(name, value, &mut first);
                // the last insertion has the lowest index
                hpack::put_indexed(DYNAMIC_FIRST + common.len() - 1 - place, &mut later);
            }
            None => {
                hpack::put_plain(name, value, &mut first);
                hpack::put_plain(name, value, &mut later);
            }
        }
    }
    Encoded {
        first,
        later,
        plain,
        body: Arc::from(&parts.body[..]),
        is_head: parts.is_head(),
    }
}

/// The parts of an HTTP/1 text, for HTTP/2 and HTTP/3; nothing if it is invalid.
pub fn parts<'t>(text: &'t [u8], scheme: &str) -> Option<Parts<'t>> {
    // HTTP/1 skips blank lines around a request
    let blank = text.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    let text = &text[blank.count()..];
    let end = text.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = core::str::from_utf8(&text[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    let (mut authority, mut own, mut is_chunked, mut length) = (None, Vec::new(), false, None);
    for line in lines {
        let (name, value) = line.split_once(':')?;
        let (name, value) = (name.to_ascii_lowercase(), value.trim());
        if name == "host" {
            authority = Some(value.to_string());
        }
        if name == "content-length" {
            length = Some(value.parse::<usize>().ok()?);
        }
        if name == "transfer-encoding" {
            if !value.eq_ignore_ascii_case("chunked") {
                // HTTP/2 has no transfer codings, and another one cannot be undone here
                return None;
            }
            is_chunked = true;
        }
        let is_te = name == "te" && value != "trailers";
        if !LEFT_OUT.contains(&name.as_str()) && !is_te {
            own.push((name, value.to_string()));
        }
    }
    let field = |name: &str, value: &str| (name.to_string(), value.to_string());
    let mut fields = Vec::from([field(":method", method), field(":scheme", scheme)]);
    fields.extend(authority.map(|authority| field(":authority", &authority)));
    fields.push(field(":path", path));
    fields.append(&mut own);
    let rest = &text[end + 4..];
    let body = match length {
        _ if is_chunked => Cow::Owned(unchunked(rest)?),
        // blank lines that may follow it are left out
        Some(length) => Cow::Borrowed(rest.get(..length)?),
        None => Cow::Borrowed(&[][..]),
    };
    Some(Parts { fields, body })
}

/// The bytes of a chunked body: frames are what chunks are in HTTP/1.1 (RFC 9113, 8.1). Trailers are
/// left out.
fn unchunked(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let line = core::str::from_utf8(&rest[..end]).ok()?;
        let size = line.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        rest = &rest[end + 2..];
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest[size..].strip_prefix(b"\r\n")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hpack::Decoder;

    fn read(decoder: &mut Decoder, block: &[u8]) -> Vec<String> {
        let mut seen = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let each = |name: &[u8], value: &[u8]| seen.push(text(name) + "=" + &text(value));
        decoder.decode(block, each).expect("well formed");
        seen
    }

    const POST: &[u8] = b"POST /form HTTP/1.1\r\nHost: h:81\r\nX-Own: 1\r\nConnection: close\r\n\
                          Content-Length: 2\r\n\r\nab";

    #[test]
    fn the_same_fields_arrive_with_each_block() {
        let texts = [
            &b"GET /a HTTP/1.1\r\nHost: h:81\r\nX-Own: 1\r\n\r\n"[..],
            POST,
        ];
        let all = encode_all(texts.into_iter(), "http").expect("requests");
        let get = [
            ":method=GET",
            ":scheme=http",
            ":authority=h:81",
            ":path=/a",
            "x-own=1",
        ];
        let post = [
            ":method=POST",
            ":scheme=http",
            ":authority=h:81",
            ":path=/form",
            "x-own=1",
            "content-length=2",
        ];
        for order in [[0, 1, 0, 1], [1, 0, 0, 1]] {
            let mut decoder = Decoder::default();
            for (number, which) in order.into_iter().enumerate() {
                let request = &all[which];
                let block = if number == 0 {
                    &request.first
                } else {
                    &request.later
                };
                let expected = if which == 0 { &get[..] } else { &post[..] };
                assert_eq!(read(&mut decoder, block), expected);
            }
        }
        assert_eq!(read(&mut Decoder::default(), &all[1].plain), post);
        assert_eq!(&*all[1].body, b"ab");
    }

    #[test]
    fn a_repeated_request_is_a_few_octets() {
        let text =
            b"GET /some/path?x=y HTTP/1.1\r\nHost: example.com:8080\r\nUser-Agent: x\r\n\r\n";
        let one = &encode_all([&text[..]].into_iter(), "http").expect("a request")[0];
        assert_eq!(one.later.len(), 5);
        assert!(one.first.len() > 30);
    }

    #[test]
    fn chunks_of_a_body_are_joined() {
        let text = |coding: &str, body: &str| {
            alloc::format!("PUT / HTTP/1.1\r\nTransfer-Encoding: {coding}\r\n\r\n{body}")
        };
        let body = |text: &str| Some(encode_one(text.as_bytes(), "http")?.body.to_vec());
        let two = text("Chunked", "5;x=y\r\nhello\r\n1\r\n!\r\n0\r\nT: 1\r\n\r\n");
        assert_eq!(body(&two), Some(b"hello!".to_vec()));
        assert_eq!(body(&text("chunked", "0\r\n\r\n")), Some(Vec::new()));
        for wrong in [
            text("chunked", "5\r\nhell"),
            text("chunked", "5\r\nhello!\r\n0\r\n\r\n"),
            text("gzip, chunked", "0\r\n\r\n"),
        ] {
            assert_eq!(body(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn blank_lines_around_a_request_are_left_out() {
        let body = |text: &[u8]| Some(encode_one(text, "http")?.body.to_vec());
        let get = b"GET / HTTP/1.1\r\n\r\n\r\n";
        assert_eq!(body(get), Some(Vec::new()));
        for before in [&b"\r\n"[..], b"\r\n\r\n", b"\n"] {
            let text = [before, POST, b"\r\n"].concat();
            assert_eq!(body(&text), Some(b"ab".to_vec()), "{before:?}");
        }
        assert_eq!(body(&POST[..POST.len() - 1]), None, "it is cut off");
    }

    #[test]
    fn invalid_requests_are_refused() {
        assert_eq!(encode_one(b"GET /", "http"), None);
        assert_eq!(encode_one(b"\r\n\r\n", "http"), None);
        assert_eq!(
            encode_one(b"GET / HTTP/1.1\r\nnonsense\r\n\r\n", "http"),
            None
        );
    }
}
