//! WebSocket over another transport: the upgrade as a part of the handshake, then frames.

use super::{OneByOne, Transport};
use crate::plan::Target;
use crate::random::Random;
use crate::sys::socket::Fd;
use load_websocket::{upgrade, Client};
use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};

/// Bytes of an answer to an upgrade that are read at once.
const ANSWER_BYTES: usize = 4096;

/// Carries messages over `inner`.
pub struct WebSocket<T> {
    inner: T,
    heads: Vec<Vec<u8>>,
    random: RefCell<Random>,
}

/// One connection.
pub struct Session<S> {
    inner: S,
    key: String,
    /// What is left to write of the upgrade.
    upgrade: Vec<u8>,
    /// The part of its answer that has come; after it, frames that came with it.
    early: Vec<u8>,
    /// So many bytes of it were searched for the end of the answer.
    searched: usize,
    client: Client,
    /// A part of a batch was written: nothing may stand between it and the rest.
    is_inside: bool,
}

impl<T: Transport> WebSocket<T> {
    /// To these targets.
    pub fn new(inner: T, targets: &[Target]) -> Self {
        let heads = targets.iter().map(|target| target.upgrade.clone());
        WebSocket {
            inner,
            heads: heads.map(Option::unwrap_or_default).collect(),
            random: RefCell::new(Random::new(RandomState::new().build_hasher().finish())),
        }
    }

    /// A key that no other connection has.
    fn key(&self) -> String {
        let mut random = self.random.borrow_mut();
        let bits = u128::from(random.bits()) << 64 | u128::from(random.bits());
        upgrade::key(bits.to_be_bytes())
    }

    /// Reads the answer to the upgrade; whether it is complete.
    fn settle(&self, session: &mut Session<T::Session>, fd: Fd) -> io::Result<bool> {
        let mut buffer = [0; ANSWER_BYTES];
        loop {
            let answered = upgrade::answer(&session.early, session.searched, &session.key);
            if let Some(length) = answered.map_err(|why| io::Error::other(why.to_string()))? {
                session.early.drain(..length);
                return Ok(true);
            }
            session.searched = session.early.len();
            match self.inner.read(&mut session.inner, fd, &mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => session.early.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes control frames; whether all are written.
    fn write_control(&self, session: &mut Session<T::Session>, fd: Fd) -> io::Result<bool> {
        while !session.client.pending().is_empty() {
            let pending = session.client.pending();
            match self.inner.write(&mut session.inner, fd, pending) {
                Ok(length) => session.client.written(length),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl<T: Transport> Transport for WebSocket<T> {
    type Session = Box<Session<T::Session>>;
    type Client = OneByOne;
    const HANDSHAKES: bool = true;
    const MESSAGES: bool = true;

    fn frames<'s>(&self, session: &'s mut Self::Session) -> Option<&'s mut Client> {
        Some(&mut session.client)
    }

    fn begin(&self, target: usize) -> io::Result<Self::Session> {
        let key = self.key();
        Ok(Box::new(Session {
            inner: self.inner.begin(target)?,
            upgrade: upgrade::with_key(&self.heads[target], &key),
            key,
            early: Vec::new(),
            searched: 0,
            client: Client::default(),
            is_inside: false,
        }))
    }

    fn handshake(&self, session: &mut Self::Session, fd: Fd) -> io::Result<bool> {
        if !self.inner.handshake(&mut session.inner, fd)? {
            return Ok(false);
        }
        while !session.upgrade.is_empty() {
            match self.inner.write(&mut session.inner, fd, &session.upgrade) {
                Ok(length) => drop(session.upgrade.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.inner.flush(&mut session.inner, fd)?;
        self.settle(session, fd)
    }

    fn emptied(&self, length: usize, room: usize) -> bool {
        self.inner.emptied(length, room)
    }

    fn was_resumed(&self, session: &Self::Session) -> bool {
        self.inner.was_resumed(&session.inner)
    }

    #[inline]
    fn read(&self, session: &mut Self::Session, fd: Fd, buffer: &mut [u8]) -> io::Result<usize> {
        if session.early.is_empty() {
            return self.inner.read(&mut session.inner, fd, buffer);
        }
        let early = session.early.len().min(buffer.len());
        buffer[..early].copy_from_slice(&session.early[..early]);
        session.early.drain(..early);
        // the caller takes a short read for an empty socket
        match self
            .inner
            .read(&mut session.inner, fd, &mut buffer[early..])
        {
            Ok(length) => Ok(early + length),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(early),
            Err(error) => Err(error),
        }
    }

    #[inline]
    fn write(&self, session: &mut Self::Session, fd: Fd, bytes: &[u8]) -> io::Result<usize> {
        if !session.is_inside && !self.write_control(session, fd)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let length = self.inner.write(&mut session.inner, fd, bytes)?;
        session.is_inside = length < bytes.len();
        Ok(length)
    }

    fn flush(&self, session: &mut Self::Session, fd: Fd) -> io::Result<bool> {
        if !session.is_inside {
            self.write_control(session, fd)?;
        }
        let is_written = session.client.pending().is_empty();
        Ok(self.inner.flush(&mut session.inner, fd)? && is_written)
    }

    fn send_close(&self, session: &mut Self::Session, fd: Fd) {
        let is_open = session.upgrade.is_empty() && !session.is_inside;
        if is_open {
            session.client.close();
            // the server may be gone already
            let _ = self.flush(session, fd);
        }
    }
}
