//! The bytes of a connection: as they are, or encrypted. Chosen once for a run, so the plain way
//! pays nothing for the other.

mod certificate;
mod datagrams;
mod echo;
mod http2;
mod in_flight;
mod stamped;
mod tls;
mod tls_config;
mod websocket;

pub use datagrams::{EchoDatagrams, NUMBER_BYTES};
pub use echo::EchoStream;
pub use http2::{Http2, RequestMeta};
pub use in_flight::{Expired, Fault, InFlight, OneByOne};
pub use stamped::Timestamped;
pub use tls::Tls;
pub use tls_config::TlsFault;
pub use websocket::WebSocket;

use crate::sys::socket::{self, Fd};
use std::io;

/// Handshakes that went on behind the first request of their connection and are over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EarlyEnds {
    /// How many resumed a session.
    pub resumed: u64,
    /// In how many the server took the request as early data.
    pub accepted: u64,
}

/// How bytes get from requests to sockets and back.
pub trait Transport {
    /// The state of each connection.
    type Session;

    /// The requests in flight on a connection, where there are several at once.
    type Client: InFlight;

    /// Whether a connection begins with a handshake.
    const HANDSHAKES: bool;

    /// Whether the kernel reports when bytes were received.
    const TIMESTAMPS: bool = false;

    /// Whether a connection carries several requests at once (streams of HTTP/2, a window of messages),
    /// not one after the other.
    const STREAMS: bool = false;

    /// Whether a connection carries messages, which have no status, not requests of HTTP.
    const MESSAGES: bool = false;

    /// Whether what is not looked at need not be read: the bytes of a connection are those of TCP.
    const DISCARDS: bool = false;

    /// Whether it is UDP.
    const DATAGRAMS: bool = false;

    /// The frames of a connection.
    fn frames<'s>(
        &self,
        _session: &'s mut Self::Session,
    ) -> Option<&'s mut load_websocket::Client> {
        None
    }

    /// Says on a connection that is about to be closed that it is, where that is the custom.
    fn send_close(&self, _session: &mut Self::Session, _fd: Fd) {}

    /// From now on connections carry so many streams at once.
    fn set_streams(&mut self, _streams: usize) {}

    /// The requests in flight on a connection.
    fn client<'s>(&self, _session: &'s mut Self::Session) -> Option<&'s mut Self::Client> {
        None
    }

    /// Writes what the requests in flight have pending, or the part of it that there is room for.
    fn send_pending(&self, _session: &mut Self::Session, _fd: Fd) -> io::Result<usize> {
        Ok(0)
    }

    /// Whether the handshake has ended with HTTP/2; where there is none both sides know.
    fn chose_http2(&self, _session: &Self::Session) -> bool {
        true
    }

    /// When the bytes of the last read were received, monotonic, if the kernel reports it.
    fn arrived_ns(&self) -> Option<u64> {
        None
    }

    /// Sets what a new socket needs before it connects.
    fn prepare(&self, _fd: Fd) -> io::Result<()> {
        Ok(())
    }

    /// A new connection to target number `target`.
    fn begin(&self, target: usize) -> io::Result<Self::Session>;

    /// Goes on with the handshake; true once it is over.
    fn handshake(&self, session: &mut Self::Session, fd: Fd) -> io::Result<bool>;

    /// Whether the last read, of `length` bytes with room for `room`, has emptied the socket.
    #[inline]
    fn emptied(&self, length: usize, room: usize) -> bool {
        length < room
    }

    /// Whether a handshake that is over has resumed an earlier session.
    fn was_resumed(&self, _session: &Self::Session) -> bool {
        false
    }

    /// Whether the handshake goes on behind the first request.
    fn is_early(&self, _session: &Self::Session) -> bool {
        false
    }

    /// Such handshakes that have ended since this was last asked.
    #[inline]
    fn take_early_ends(&self) -> EarlyEnds {
        EarlyEnds::default()
    }

    /// Reads bytes of answers; 0 at the end of the stream.
    fn read(&self, session: &mut Self::Session, fd: Fd, buffer: &mut [u8]) -> io::Result<usize>;

    /// Writes bytes of requests; may take only some.
    fn write(&self, session: &mut Self::Session, fd: Fd, bytes: &[u8]) -> io::Result<usize>;

    /// Writes what the session itself still holds; true once it holds nothing.
    fn flush(&self, session: &mut Self::Session, fd: Fd) -> io::Result<bool>;
}

/// Bytes as they are.
pub struct Plain;

impl Transport for Plain {
    type Session = ();
    type Client = OneByOne;
    const HANDSHAKES: bool = false;
    const DISCARDS: bool = true;

    fn begin(&self, _target: usize) -> io::Result<()> {
        Ok(())
    }

    fn handshake(&self, _session: &mut (), _fd: Fd) -> io::Result<bool> {
        Ok(true)
    }

    #[inline]
    fn read(&self, _session: &mut (), fd: Fd, buffer: &mut [u8]) -> io::Result<usize> {
        socket::read(fd, buffer)
    }

    #[inline]
    fn write(&self, _session: &mut (), fd: Fd, bytes: &[u8]) -> io::Result<usize> {
        socket::write(fd, bytes)
    }

    fn flush(&self, _session: &mut (), _fd: Fd) -> io::Result<bool> {
        Ok(true)
    }
}
