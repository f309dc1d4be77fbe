//! A protocol over a transport: what a thread reads from and writes to its connections.

use super::Protocol;
use crate::sys::socket::Fd;
use crate::transport::Transport;
use std::io;

/// A protocol over a transport.
pub struct Wire<T, P> {
    /// Of the bytes.
    pub transport: T,
    /// Of what they mean.
    pub protocol: P,
}

/// The state of one connection.
pub struct Session<B, P> {
    bytes: B,
    protocol: P,
}

/// The session of a connection over `T` with `P`.
pub type SessionOf<T, P> = Session<<T as Transport>::Session, <P as Protocol>::Session>;

/// The bytes of one connection.
pub struct Bytes<'s, T: Transport> {
    transport: &'s T,
    session: &'s mut T::Session,
    fd: Fd,
}

impl<T: Transport> Bytes<'_, T> {
    /// The same for a call.
    #[inline]
    pub fn lend(&mut self) -> Bytes<'_, T> {
        Bytes {
            transport: self.transport,
            session: self.session,
            fd: self.fd,
        }
    }

    /// Reads bytes; 0 at the end of the stream.
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.transport.read(self.session, self.fd, buffer)
    }

    /// Writes bytes; may take only some.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.transport.write(self.session, self.fd, bytes)
    }

    /// Bytes of each datagram of the last read; the last of them may have fewer.
    pub fn datagram_bytes(&self) -> usize {
        self.transport.datagram_bytes()
    }

    /// Writes datagrams of `each` bytes, of which the last may have fewer; how many bytes of them there
    /// was room for.
    pub fn write_datagrams(&mut self, bytes: &[u8], each: usize) -> io::Result<usize> {
        self.transport
            .write_datagrams(self.session, self.fd, bytes, each)
    }

    /// Writes what the transport still holds; true once it holds nothing.
    #[inline]
    pub fn flush(&mut self) -> io::Result<bool> {
        self.transport.flush(self.session, self.fd)
    }

    /// Whether the handshake has ended with HTTP/2; where there is none both sides know.
    pub fn chose_http2(&self) -> bool {
        self.transport.chose_http2(self.session)
    }
}

impl<T: Transport, P: Protocol> Wire<T, P> {
    /// Whether a connection begins with a handshake.
    pub const HANDSHAKES: bool = T::HANDSHAKES || P::HANDSHAKES;

    /// A new connection to target number `target`.
    pub fn begin(&self, target: usize) -> io::Result<SessionOf<T, P>> {
        Ok(Session {
            bytes: self.transport.begin(target)?,
            protocol: self.protocol.begin(target),
        })
    }

    /// The state of the protocol, and the bytes, of a connection.
    #[inline]
    fn parts<'s>(
        &'s self,
        session: &'s mut SessionOf<T, P>,
        fd: Fd,
    ) -> (&'s mut P::Session, Bytes<'s, T>) {
        let bytes = Bytes {
            transport: &self.transport,
            session: &mut session.bytes,
            fd,
        };
        (&mut session.protocol, bytes)
    }

    /// Goes on with the handshakes; true once they are over.
    pub fn handshake(&self, session: &mut SessionOf<T, P>, fd: Fd) -> io::Result<bool> {
        if !self.transport.handshake(&mut session.bytes, fd)? {
            return Ok(false);
        }
        let (own, bytes) = self.parts(session, fd);
        self.protocol.handshake(own, bytes)
    }

    /// Whether a handshake that is over has resumed an earlier session.
    pub fn was_resumed(&self, session: &SessionOf<T, P>) -> bool {
        self.transport.was_resumed(&session.bytes)
    }

    /// Whether the handshake goes on behind the first request.
    pub fn is_early(&self, session: &SessionOf<T, P>) -> bool {
        self.transport.is_early(&session.bytes)
    }

    /// Reads bytes of answers; 0 at the end of the stream.
    #[inline]
    pub fn read(
        &self,
        session: &mut SessionOf<T, P>,
        fd: Fd,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let (own, bytes) = self.parts(session, fd);
        self.protocol.read(own, bytes, buffer)
    }

    /// Writes bytes of requests; may take only some.
    #[inline]
    pub fn write(
        &self,
        session: &mut SessionOf<T, P>,
        fd: Fd,
        request: &[u8],
    ) -> io::Result<usize> {
        let (own, bytes) = self.parts(session, fd);
        self.protocol.write(own, bytes, request)
    }

    /// Writes what the session itself still holds; true once it holds nothing.
    #[inline]
    pub fn flush(&self, session: &mut SessionOf<T, P>, fd: Fd) -> io::Result<bool> {
        let (own, bytes) = self.parts(session, fd);
        self.protocol.flush(own, bytes)
    }

    /// Writes what the requests in flight have pending, or the part of it that there is room for.
    #[inline]
    pub fn send_pending(&self, session: &mut SessionOf<T, P>, fd: Fd) -> io::Result<usize> {
        let (own, bytes) = self.parts(session, fd);
        self.protocol.send_pending(own, bytes)
    }

    /// When a connection's timer shall come, if none is set that comes as early; it counts as set then.
    pub fn take_timer(&self, session: &mut SessionOf<T, P>) -> Option<u64> {
        self.protocol.take_timer(&mut session.protocol)
    }

    /// A timer of a connection has come; whether it is the one that is set, and no earlier one.
    pub fn timer_came(&self, session: &mut SessionOf<T, P>, at_ns: u64) -> bool {
        self.protocol.timer_came(&mut session.protocol, at_ns)
    }

    /// The requests in flight on a connection.
    #[inline]
    pub fn client<'s>(&self, session: &'s mut SessionOf<T, P>) -> Option<&'s mut P::Client> {
        P::client(&mut session.protocol)
    }

    /// The frames of a connection.
    #[inline]
    pub fn frames<'s>(
        &self,
        session: &'s mut SessionOf<T, P>,
    ) -> Option<&'s mut load_websocket::Client> {
        P::frames(&mut session.protocol)
    }

    /// Says on a connection that is about to be closed that it is, where that is the custom.
    pub fn send_close(&self, session: &mut SessionOf<T, P>, fd: Fd) {
        let (own, bytes) = self.parts(session, fd);
        self.protocol.send_close(own, bytes);
    }

    /// The same of its bytes, after the last of them.
    pub fn send_end(&self, session: &mut SessionOf<T, P>, fd: Fd) {
        self.transport.send_end(&mut session.bytes, fd);
    }
}
