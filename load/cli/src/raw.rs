//! Messages over TCP and UDP (`tcp://`, `udp://`): their sizes, and what goes with them.

use crate::options::Typed;
use crate::targets::{Common, Protocol};
use crate::values::{number, usage, Refusal};
use load_engine::plan::{Raw, Rendered};
use load_engine::random::Random;
use load_engine::transport::NUMBER_BYTES;
use load_http1::url::Url;

/// Size of a message that has none.
const SIZE_BYTES: usize = 64;
/// Largest message, and largest answer, over TCP.
const SIZE_MAX_BYTES: usize = 64 << 20;
/// Largest datagram over IPv4.
const DATAGRAM_MAX_BYTES: usize = 65_507;
/// Most bytes that the messages in flight on a connection may have.
const WINDOW_MAX_BYTES: usize = 256 << 20;

/// Whether it names a host and a port of TCP or UDP, and nothing else.
pub fn is_place(url: &Url) -> bool {
    let is_raw = matches!(url.scheme.as_str(), "tcp" | "udp");
    is_raw && url.port.is_some() && url.path == "/" && url.user.is_none()
}

fn bytes(typed: &Typed, name: &str) -> Result<Option<usize>, Refusal> {
    if !typed.has(name) {
        return Ok(None);
    }
    let figure = number(typed, name, 0.0)?;
    if !(1.0..=SIZE_MAX_BYTES as f64).contains(&figure) || figure.fract() != 0.0 {
        return usage(format!(
            "--{name}: out of range (bytes, a whole number from 1 to {SIZE_MAX_BYTES})"
        ));
    }
    Ok(Some(figure as usize))
}

/// The size of messages, if one was typed.
pub fn size(typed: &Typed) -> Result<Option<usize>, Refusal> {
    let size = bytes(typed, "size")?;
    let body = ["body", "body-file"]
        .into_iter()
        .find(|name| typed.has(name));
    if let (Some(_), Some(name)) = (size, body) {
        return usage(format!("--size: does not work with --{name} (remove one)"));
    }
    Ok(size)
}

/// A message: the body, or bytes in which no part is like another, so that an echo that has lost some
/// is none.
pub fn message(common: &Common) -> Rendered {
    let bytes = common.body.clone().unwrap_or_else(|| {
        let mut random = Random::new(1);
        let size = common.size.unwrap_or(SIZE_BYTES);
        (0..size).map(|_| random.bits() as u8).collect()
    });
    Rendered {
        bytes: bytes.into(),
        head_only: false,
        mixed: None,
    }
}

/// What does not go with messages, and what only goes with them.
pub fn options(
    typed: &Typed,
    protocol: Protocol,
    message_bytes: usize,
    window: usize,
) -> Result<Option<Raw>, Refusal> {
    let own = ["size", "reply-size", "window"];
    if matches!(protocol, Protocol::Http | Protocol::WebSocket) {
        return match own.iter().find(|name| typed.has(name)) {
            Some(name) => usage(format!("--{name}: is for tcp:// and udp://")),
            None => Ok(None),
        };
    }
    let of_http = [
        "http2",
        "grpc",
        "script",
        "method",
        "header",
        "bodies",
        "rx-timestamps",
    ];
    for name in of_http {
        if typed.has(name) {
            return usage(format!("--{name}: does not work with tcp:// and udp://"));
        }
    }
    if typed.has("depth") {
        return usage("--depth: does not work with tcp:// and udp:// (use --window)");
    }
    if message_bytes == 0 {
        return usage("--body: a message of tcp:// and udp:// has at least one byte");
    }
    if message_bytes.saturating_mul(window) > WINDOW_MAX_BYTES {
        return usage(format!(
            "--window: {window} messages of {message_bytes} bytes are more than \
             {WINDOW_MAX_BYTES} bytes on each connection"
        ));
    }
    let reply_bytes = bytes(typed, "reply-size")?;
    if protocol == Protocol::Udp {
        check_datagrams(typed, message_bytes)?;
    }
    Ok(Some(Raw {
        datagrams: protocol == Protocol::Udp,
        reply_bytes,
    }))
}

fn check_datagrams(typed: &Typed, message_bytes: usize) -> Result<(), Refusal> {
    let of_tcp = [
        "tcp-congestion",
        "tcp-mss",
        "tcp-fast-open",
        "proxy-protocol",
        "abort",
    ];
    if let Some(name) = of_tcp.iter().find(|name| typed.has(name)) {
        return usage(format!("--{name}: does not work with udp://"));
    }
    for name in ["body", "body-file", "reply-size"] {
        if typed.has(name) {
            return usage(format!(
                "--{name}: does not work with udp:// (--size sets the size of the datagrams)"
            ));
        }
    }
    if !(NUMBER_BYTES..=DATAGRAM_MAX_BYTES).contains(&message_bytes) {
        return usage(format!(
            "--size: a datagram has {NUMBER_BYTES} to {DATAGRAM_MAX_BYTES} bytes"
        ));
    }
    Ok(())
}
