//! HTTP/2 over another transport: by prior knowledge over plain connections, chosen by ALPN over TLS.

use super::Transport;
use crate::sys::socket::Fd;
use load_http2::{Client, Fault, Ignore};
use std::io::{self, ErrorKind};

/// Bytes of a server's first frames that are read at once.
const FIRST_BYTES: usize = 4096;

/// What is known of a request on a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestMeta {
    /// When it was due.
    pub due_ns: u64,
    /// When it was written (in closed loop: when the stream became free for it).
    pub sent_ns: u64,
    /// Its number within its target.
    pub request: u32,
}

/// Carries streams over `inner`.
pub struct Http2<T> {
    inner: T,
    streams: u32,
}

/// One connection.
pub struct Session<S> {
    inner: S,
    client: Box<Client<RequestMeta>>,
}

impl<T: Transport> Http2<T> {
    /// One stream at once on each connection, until another number is set.
    pub fn new(inner: T) -> Self {
        Http2 { inner, streams: 1 }
    }

    /// Reads a server's first frames; whether it has sent its settings.
    fn settle(&self, session: &mut Session<T::Session>, fd: Fd) -> io::Result<bool> {
        let (mut buffer, mut events) = ([0; FIRST_BYTES], Vec::new());
        while !session.client.is_settled() {
            match self.inner.read(&mut session.inner, fd, &mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => session
                    .client
                    .feed(&buffer[..length], &mut events, &mut Ignore)
                    .map_err(no_http2)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

fn no_http2(fault: Fault) -> io::Error {
    let text = format!("the server does not speak HTTP/2 ({})", fault.name());
    io::Error::other(text)
}

impl<T: Transport> Transport for Http2<T> {
    type Session = Session<T::Session>;
    type Client = Client<RequestMeta>;
    const HANDSHAKES: bool = true;
    const STREAMS: bool = true;

    fn set_streams(&mut self, streams: usize) {
        self.streams = streams as u32;
    }

    fn client<'s>(&self, session: &'s mut Self::Session) -> Option<&'s mut Client<RequestMeta>> {
        Some(&mut session.client)
    }

    fn begin(&self, target: usize) -> io::Result<Self::Session> {
        Ok(Session {
            inner: self.inner.begin(target)?,
            client: Box::new(Client::new(self.streams)),
        })
    }

    fn handshake(&self, session: &mut Self::Session, fd: Fd) -> io::Result<bool> {
        if !self.inner.handshake(&mut session.inner, fd)? {
            return Ok(false);
        }
        if !self.inner.chose_http2(&session.inner) {
            return Err(io::Error::other("the server did not choose HTTP/2"));
        }
        self.send_pending(session, fd)?;
        let is_settled = self.settle(session, fd)?;
        if session.client.is_going() {
            return Err(io::Error::other("the server is going away (GOAWAY)"));
        }
        self.send_pending(session, fd)?;
        Ok(is_settled)
    }

    fn emptied(&self, length: usize, room: usize) -> bool {
        self.inner.emptied(length, room)
    }

    fn was_resumed(&self, session: &Self::Session) -> bool {
        self.inner.was_resumed(&session.inner)
    }

    #[inline]
    fn read(&self, session: &mut Self::Session, fd: Fd, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(&mut session.inner, fd, buffer)
    }

    fn write(&self, session: &mut Self::Session, fd: Fd, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(&mut session.inner, fd, bytes)
    }

    fn flush(&self, session: &mut Self::Session, fd: Fd) -> io::Result<bool> {
        self.inner.flush(&mut session.inner, fd)
    }

    #[inline]
    fn send_pending(&self, session: &mut Self::Session, fd: Fd) -> io::Result<usize> {
        let pending = session.client.pending();
        if pending.is_empty() {
            return Ok(0);
        }
        match self.inner.write(&mut session.inner, fd, pending) {
            Ok(length) => {
                session.client.written(length);
                Ok(length)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }
}
