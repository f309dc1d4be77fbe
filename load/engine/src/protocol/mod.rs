//! How requests and answers share the bytes of a connection: HTTP/1, HTTP/2, HTTP/3, WebSocket,
//! messages that come back. Chosen once for a run, as the [`Transport`] of the bytes is; any protocol
//! but HTTP/3 and datagrams goes over any transport of streams.

mod datagrams;
mod echo;
mod http2;
mod http3;
mod in_flight;
mod websocket;
mod wire;

pub use datagrams::EchoDatagrams;
pub use echo::EchoStream;
pub use http2::Http2;
pub use http3::Http3;
pub use in_flight::{Expired, Fault, InFlight, OneByOne, RequestMeta};
pub use websocket::WebSocket;
pub use wire::{Bytes, SessionOf, Wire};

use crate::transport::Transport;
use std::io;

/// How requests and answers share the bytes of a connection.
pub trait Protocol {
    /// Its state of each connection.
    type Session;

    /// The requests in flight on a connection, where there are several at once.
    type Client: InFlight;

    /// Whether a connection begins with an exchange before its first request.
    const HANDSHAKES: bool = false;

    /// Whether a connection carries several requests at once (streams of HTTP/2 and HTTP/3, a window of
    /// messages),
    /// not one after the other.
    const STREAMS: bool = false;

    /// Whether a connection carries messages, which have no status, not requests of HTTP.
    const MESSAGES: bool = false;

    /// Whether a connection has to act at times of its own.
    const TIMERS: bool = false;

    /// A new connection to target number `target`.
    fn begin(&self, target: usize) -> Self::Session;

    /// Goes on with the exchange that a connection begins with; true once it is over. Interrupted where
    /// there is more to read than is read at once.
    fn handshake<T: Transport>(
        &self,
        _session: &mut Self::Session,
        _bytes: Bytes<'_, T>,
    ) -> io::Result<bool> {
        Ok(true)
    }

    /// Reads bytes of answers; 0 at the end of the stream.
    #[inline]
    fn read<T: Transport>(
        &self,
        _session: &mut Self::Session,
        mut bytes: Bytes<'_, T>,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        bytes.read(buffer)
    }

    /// Writes bytes of requests; may take only some.
    #[inline]
    fn write<T: Transport>(
        &self,
        _session: &mut Self::Session,
        mut bytes: Bytes<'_, T>,
        request: &[u8],
    ) -> io::Result<usize> {
        bytes.write(request)
    }

    /// Writes what the session itself still holds; true once it holds nothing.
    #[inline]
    fn flush<T: Transport>(
        &self,
        _session: &mut Self::Session,
        mut bytes: Bytes<'_, T>,
    ) -> io::Result<bool> {
        bytes.flush()
    }

    /// Writes what the requests in flight have pending, or the part of it that there is room for.
    fn send_pending<T: Transport>(
        &self,
        _session: &mut Self::Session,
        _bytes: Bytes<'_, T>,
    ) -> io::Result<usize> {
        Ok(0)
    }

    /// Says on a connection that is about to be closed that it is, where that is the custom.
    fn send_close<T: Transport>(&self, _session: &mut Self::Session, _bytes: Bytes<'_, T>) {}

    /// When a connection's timer shall come (monotonic), if none is set that comes as early; it counts
    /// as set then.
    fn take_timer(&self, _session: &mut Self::Session) -> Option<u64> {
        None
    }

    /// A timer of a connection has come; whether it is the one that is set, and no earlier one.
    fn timer_came(&self, _session: &mut Self::Session, _at_ns: u64) -> bool {
        false
    }

    /// The requests in flight on a connection.
    #[inline]
    fn client(_session: &mut Self::Session) -> Option<&mut Self::Client> {
        None
    }

    /// The frames of a connection.
    #[inline]
    fn frames(_session: &mut Self::Session) -> Option<&mut load_websocket::Client> {
        None
    }
}

/// HTTP/1: requests one after the other, as they are.
pub struct Http1;

impl Protocol for Http1 {
    type Session = ();
    type Client = OneByOne;

    fn begin(&self, _target: usize) {}
}
