//! The kinds of URL.

use load_http1::url::Url;

/// The kind of URL of all servers of a run, encrypted or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// HTTP.
    Http,
    /// WebSocket.
    WebSocket,
    /// Messages over TCP.
    Tcp,
    /// Messages over UDP.
    Udp,
}

impl Scheme {
    /// That of a URL.
    pub fn of(url: &Url) -> Scheme {
        match url.scheme.as_str() {
            "tcp" => Scheme::Tcp,
            "udp" => Scheme::Udp,
            _ if url.is_websocket() => Scheme::WebSocket,
            _ => Scheme::Http,
        }
    }

    /// The beginning of such URLs where they are not encrypted.
    pub fn prefix(self) -> &'static str {
        match self {
            Scheme::Http => "http://",
            Scheme::WebSocket => "ws://",
            Scheme::Tcp => "tcp://",
            Scheme::Udp => "udp://",
        }
    }
}
