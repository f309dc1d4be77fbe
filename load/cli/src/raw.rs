//! Messages over TCP and UDP (`tcp://`, `udp://`): their sizes, and options that exclude each other.

use crate::refusal::{because, wrong, Refusal, Wrong};
use crate::scheme::Scheme;
use crate::table::Args;
use load_engine::plan::{Rendered, NUMBER_BYTES};
use load_engine::random::Random;
use load_http1::url::Url;

/// Size of a message that has none.
const SIZE_BYTES: usize = 64;
/// Largest datagram over IPv4.
const DATAGRAM_MAX_BYTES: usize = 65_507;
/// Most bytes that the messages in flight on a connection may have.
const WINDOW_MAX_BYTES: usize = 256 << 20;

/// Whether it names a host and a port of TCP or UDP, and nothing else.
pub fn is_place(url: &Url) -> bool {
    let is_raw = matches!(url.scheme.as_str(), "tcp" | "udp");
    is_raw && url.port.is_some() && url.path == "/" && url.user.is_none()
}

/// The size of messages, if one was typed.
pub fn size(args: &Args) -> Result<Option<usize>, Refusal> {
    let body = args.first_of(&["body", "body-file"]);
    if let (Some(_), Some(name)) = (args.size, body) {
        return wrong(
            "size",
            Wrong::Clash(format!("--{name} (remove one)").into()),
        );
    }
    Ok(args.size.map(|size| size.0))
}

/// A message: the body, or bytes in which no part is like another, so that an echo that has lost some
/// is none.
pub fn message(body: Option<&[u8]>, size: Option<usize>) -> Rendered {
    let bytes = body.map_or_else(
        || {
            let mut random = Random::new(1);
            let size = size.unwrap_or(SIZE_BYTES);
            (0..size).map(|_| random.bits() as u8).collect()
        },
        <[u8]>::to_vec,
    );
    Rendered {
        bytes: bytes.into(),
        head_only: false,
        mixed: None,
    }
}

/// What does not go with messages, and what only goes with them.
pub fn check(args: &Args, scheme: Scheme, message_bytes: usize) -> Result<(), Refusal> {
    if matches!(scheme, Scheme::Http | Scheme::WebSocket) {
        return match args.first_of(&["size", "reply-size", "window"]) {
            Some(name) => wrong(name, Wrong::OnlyFor("tcp:// and udp://")),
            None => Ok(()),
        };
    }
    let of_http = [
        "http2",
        "http3",
        "grpc",
        "script",
        "method",
        "header",
        "bodies",
        "rx-timestamps",
    ];
    if let Some(name) = args.first_of(&of_http) {
        return wrong(name, Wrong::Clash("tcp:// and udp://".into()));
    }
    if args.has("depth") {
        return wrong(
            "depth",
            Wrong::Clash("tcp:// and udp:// (use --window)".into()),
        );
    }
    if message_bytes == 0 {
        return because(
            "body",
            "a message of tcp:// and udp:// has at least one byte",
        );
    }
    let window = args.window.0;
    if message_bytes.saturating_mul(window) > WINDOW_MAX_BYTES {
        let why = format!(
            "{window} messages of {message_bytes} bytes are more than {WINDOW_MAX_BYTES} bytes on \
             each connection"
        );
        return because("window", why);
    }
    match scheme {
        Scheme::Udp => check_datagrams(args, message_bytes),
        _ => Ok(()),
    }
}

fn check_datagrams(args: &Args, message_bytes: usize) -> Result<(), Refusal> {
    let of_tcp = [
        "tcp-congestion",
        "tcp-mss",
        "tcp-fast-open",
        "proxy-protocol",
        "abort",
    ];
    if let Some(name) = args.first_of(&of_tcp) {
        return wrong(name, Wrong::Clash("udp://".into()));
    }
    if let Some(name) = args.first_of(&["body", "body-file", "reply-size"]) {
        return wrong(
            name,
            Wrong::Clash("udp:// (--size sets the size of the datagrams)".into()),
        );
    }
    if !(NUMBER_BYTES..=DATAGRAM_MAX_BYTES).contains(&message_bytes) {
        return because(
            "size",
            format!("a datagram has {NUMBER_BYTES} to {DATAGRAM_MAX_BYTES} bytes"),
        );
    }
    Ok(())
}
