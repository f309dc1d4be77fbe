//! Requests as frames, created once before the run from the texts that HTTP/1 sends.

use crate::frame::kind;
use crate::qpack;
use crate::varint;
use alloc::sync::Arc;
use alloc::vec::Vec;
use load_http2::request::parts;

/// The bytes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Its HEADERS frame, and the type and length of its DATA frame if it has a body.
    pub head: Vec<u8>,
    /// The body; it may be empty.
    pub body: Arc<[u8]>,
    /// It is a HEAD request, whose response has no body.
    pub is_head: bool,
}

/// Converts an HTTP/1 text for HTTP/3; nothing if it is invalid.
pub fn encode(text: &[u8], scheme: &str) -> Option<Encoded> {
    let parts = parts(text, scheme)?;
    let mut block = Vec::new();
    qpack::put_prefix(&mut block);
    for (name, value) in &parts.fields {
        qpack::put(name.as_bytes(), value.as_bytes(), &mut block);
    }
    let mut head = Vec::new();
    varint::put(kind::HEADERS, &mut head);
    varint::put(block.len() as u64, &mut head);
    head.append(&mut block);
    if !parts.body.is_empty() {
        varint::put(kind::DATA, &mut head);
        varint::put(parts.body.len() as u64, &mut head);
    }
    Some(Encoded {
        head,
        body: Arc::from(&parts.body[..]),
        is_head: parts.is_head(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_its_fields_and_its_body() {
        let text = b"POST /a HTTP/1.1\r\nHost: h:81\r\nContent-Length: 3\r\n\r\nabc";
        let one = encode(text, "https").expect("a request");
        let [kind, length, rest @ ..] = &one.head[..] else {
            panic!("{:?}", one.head)
        };
        assert_eq!(*kind, 1);
        let (block, data) = rest.split_at(usize::from(*length));
        assert_eq!(data, [0, 3]);
        assert_eq!((&*one.body, one.is_head), (&b"abc"[..], false));
        let mut seen = Vec::new();
        qpack::decode(block, &mut Vec::new(), |name, value| {
            seen.push(String::from_utf8_lossy(&[name, b"=", value].concat()).into_owned());
        })
        .expect("our own");
        let expected = [
            ":method=POST",
            ":scheme=https",
            ":authority=h:81",
            ":path=/a",
            "content-length=3",
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_request_without_a_body_has_no_data_frame() {
        let one = encode(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", "https").expect("a request");
        assert_eq!(usize::from(one.head[1]), one.head.len() - 2);
        assert!(one.is_head && one.body.is_empty());
        assert_eq!(encode(b"GET /", "https"), None);
    }
}
