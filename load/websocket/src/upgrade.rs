//! The upgrade from HTTP/1.1 to WebSocket and its proof (RFC 6455, 4.1).

use base64::engine::general_purpose::STANDARD;
use base64::Engine;
use load_http1::head;
use load_http1::request::Request;
use load_http1::Malformed;
use ring::digest::{digest, SHA1_FOR_LEGACY_USE_ONLY};
use std::fmt;

/// Appended to the key before it is hashed (RFC 6455, 1.3).
const ID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Why the upgrade failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another status than 101.
    Status(u16),
    /// Sec-WebSocket-Accept does not match the key.
    Accept,
    /// An extension that was not asked for (RFC 6455, 4.1).
    Extension,
    /// The answer is not one of HTTP/1.1.
    Malformed(Malformed),
}

impl fmt::Display for Refused {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Status(status) => write!(to, "the server answered {status} to the upgrade"),
            Refused::Accept => {
                to.write_str("the server's Sec-WebSocket-Accept is wrong or missing")
            }
            Refused::Extension => {
                to.write_str("the server uses an extension that was not asked for")
            }
            Refused::Malformed(class) => {
                write!(to, "malformed response to the upgrade: {}", class.name())
            }
        }
    }
}

/// The head of an upgrade request without the key, which each connection adds.
pub fn head(path: &str, host: &str, headers: &[(String, String)]) -> Vec<u8> {
    let mut fields = headers.to_vec();
    // each connection has a key of its own (RFC 6455, 11.3.1)
    fields.retain(|(own, _)| !own.eq_ignore_ascii_case("Sec-WebSocket-Key"));
    for (name, value) in [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", "13"),
    ] {
        fields.retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        fields.push((name.to_string(), value.to_string()));
    }
    let request = Request {
        method: "GET",
        path,
        host,
        headers: &fields,
        body: None,
    };
    let mut bytes = request.render();
    bytes.truncate(bytes.len() - b"\r\n".len());
    bytes
}

/// The complete upgrade request.
pub fn with_key(head: &[u8], key: &str) -> Vec<u8> {
    let end = format!("Sec-WebSocket-Key: {key}\r\n\r\n");
    [head, end.as_bytes()].concat()
}

/// The text of a key.
pub fn key(random: [u8; 16]) -> String {
    STANDARD.encode(random)
}

/// The server's response to a key.
pub fn accept(key: &str) -> String {
    let text = format!("{key}{ID}");
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes()))
}

/// Reads the answer: its length, or `None` while it is not complete. Its first `searched` bytes were
/// tried before.
pub fn answer(input: &[u8], searched: usize, key: &str) -> Result<Option<usize>, Refused> {
    let found = head::parse_on(input, searched, true, &mut |_, _| {});
    let found = found.map_err(Refused::Malformed)?;
    let Some(head) = found else {
        return Ok(None);
    };
    if head.status != 101 {
        return Err(Refused::Status(head.status));
    }
    let text = &input[..head.len];
    if !values(text, b"sec-websocket-accept").eq([accept(key).as_bytes()]) {
        return Err(Refused::Accept);
    }
    let mut extensions = values(text, b"sec-websocket-extensions");
    if extensions.any(|named| !named.is_empty()) {
        return Err(Refused::Extension);
    }
    Ok(Some(head.len))
}

/// The values of a field in a head.
fn values<'t>(head: &'t [u8], name: &'static [u8]) -> impl Iterator<Item = &'t [u8]> {
    let lines = head.split(|byte| *byte == b'\n');
    lines.filter_map(move |line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let is_own = line[..colon].eq_ignore_ascii_case(name);
        is_own.then(|| line[colon + 1..].trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

    #[test]
    fn the_key_of_the_rfc_has_its_answer() {
        assert_eq!(accept(KEY), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(key(*b"the sample nonce"), KEY);
    }

    #[test]
    fn an_upgrade_has_its_fields_once() {
        let own = [
            ("connection".to_string(), "close".to_string()),
            ("sec-websocket-key".to_string(), "own".to_string()),
            ("Cookie".to_string(), "a=b".to_string()),
        ];
        let text = with_key(&head("/chat?x", "h:81", &own), KEY);
        let wanted = format!(
            "GET /chat?x HTTP/1.1\r\nHost: h:81\r\nCookie: a=b\r\nUpgrade: websocket\r\n\
             Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
        );
        assert_eq!(String::from_utf8(text), Ok(wanted));
    }

    #[test]
    fn only_the_right_answer_counts() {
        let good = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
            sec-websocket-accept:  s3pPLMBiTxaQ9kYGzzhZRbK+xOo= \r\n\r\n\x81\x00";
        assert_eq!(answer(good, 0, KEY), Ok(Some(good.len() - 2)));
        assert_eq!(answer(&good[..40], 0, KEY), Ok(None));
        assert_eq!(answer(good, 0, "another"), Err(Refused::Accept));
        for (text, refused) in [
            (&b"HTTP/1.1 403 No\r\n\r\n"[..], Refused::Status(403)),
            (b"HTTP/1.1 101 Up\r\n\r\n", Refused::Accept),
            (
                b"HTTP/1.1 101 Up\r\nsec-websocket-extensions: permessage-deflate\r\n\
                sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
                Refused::Extension,
            ),
            (b"hello\r\n\r\n", Refused::Malformed(Malformed::StatusLine)),
        ] {
            assert_eq!(answer(text, 0, KEY), Err(refused));
        }
    }
}
