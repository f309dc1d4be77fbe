//! The bytes of a connection: plain or encrypted. Chosen once for a run, so the plain way
//! pays nothing for the other.

mod batches;
mod certificate;
mod datagrams;
mod plain;
mod stamped;
mod tls;
mod tls_config;

pub use batches::Batches;
pub use datagrams::Datagrams;
pub use plain::Plain;
pub use stamped::Timestamped;
pub(crate) use tls::server_name;
pub use tls::Tls;
pub(crate) use tls_config::configuration;
pub use tls_config::TlsFault;

use crate::sys::socket::Fd;
use std::io::{self, ErrorKind};

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

    /// Whether a connection begins with a handshake.
    const HANDSHAKES: bool = false;

    /// Whether the kernel reports when bytes were received.
    const TIMESTAMPS: bool = false;

    /// Whether what is not looked at need not be read: the bytes of a connection are those of TCP.
    const DISCARDS: bool = false;

    /// Whether it is UDP.
    const DATAGRAMS: bool = false;

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
    fn handshake(&self, _session: &mut Self::Session, _fd: Fd) -> io::Result<bool> {
        Ok(true)
    }

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

    /// Bytes of each datagram of the last read; the last of them may have fewer.
    fn datagram_bytes(&self) -> usize {
        usize::MAX
    }

    /// Writes datagrams of `each` bytes, of which the last may have fewer; how many bytes of them there
    /// was room for.
    fn write_datagrams(
        &self,
        session: &mut Self::Session,
        fd: Fd,
        bytes: &[u8],
        each: usize,
    ) -> io::Result<usize> {
        one_by_one(self, session, fd, (bytes, each))
    }

    /// Writes what the session itself still holds; true once it holds nothing.
    fn flush(&self, _session: &mut Self::Session, _fd: Fd) -> io::Result<bool> {
        Ok(true)
    }

    /// Says on a connection that is about to be closed that no more bytes come, where that is the custom.
    fn send_end(&self, _session: &mut Self::Session, _fd: Fd) {}
}

/// Writes each of some datagrams by a call of its own, as far as there is room.
fn one_by_one<T: Transport + ?Sized>(
    transport: &T,
    session: &mut T::Session,
    fd: Fd,
    (bytes, each): (&[u8], usize),
) -> io::Result<usize> {
    let mut written = 0;
    for datagram in bytes.chunks(each) {
        match transport.write(session, fd, datagram) {
            Ok(_) => written += datagram.len(),
            Err(error) if error.kind() == ErrorKind::WouldBlock && written > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}
