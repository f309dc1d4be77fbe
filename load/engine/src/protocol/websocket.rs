//! WebSocket: the upgrade as a part of the handshake, then frames.

use super::{Bytes, OneByOne, Protocol};
use crate::plan::Target;
use crate::random::Random;
use crate::transport::Transport;
use load_websocket::{upgrade, Client};
use std::cell::RefCell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, ErrorKind};

/// Bytes of an answer to an upgrade that are read at once.
const ANSWER_BYTES: usize = 4096;

/// Carries messages.
pub struct WebSocket {
    heads: Vec<Vec<u8>>,
    random: RefCell<Random>,
}

/// One connection.
pub struct Session {
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

impl WebSocket {
    /// To these targets.
    pub fn new(targets: &[Target]) -> WebSocket {
        let heads = targets.iter().map(|target| target.upgrade.clone());
        WebSocket {
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
}

impl Session {
    /// Reads the answer to the upgrade; whether it is complete.
    fn settle<T: Transport>(&mut self, mut bytes: Bytes<'_, T>) -> io::Result<bool> {
        let mut buffer = [0; ANSWER_BYTES];
        loop {
            let answered = upgrade::answer(&self.early, self.searched, &self.key);
            if let Some(length) = answered.map_err(|why| io::Error::other(why.to_string()))? {
                self.early.drain(..length);
                return Ok(true);
            }
            self.searched = self.early.len();
            match bytes.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => self.early.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes control frames; whether all are written.
    fn write_control<T: Transport>(&mut self, bytes: &mut Bytes<'_, T>) -> io::Result<bool> {
        while !self.client.pending().is_empty() {
            match bytes.write(self.client.pending()) {
                Ok(length) => self.client.written(length),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Protocol for WebSocket {
    type Session = Box<Session>;
    type Client = OneByOne;
    const HANDSHAKES: bool = true;
    const MESSAGES: bool = true;

    fn begin(&self, target: usize) -> Self::Session {
        let key = self.key();
        Box::new(Session {
            upgrade: upgrade::with_key(&self.heads[target], &key),
            key,
            early: Vec::new(),
            searched: 0,
            client: Client::default(),
            is_inside: false,
        })
    }

    fn handshake<T: Transport>(
        &self,
        session: &mut Self::Session,
        mut bytes: Bytes<'_, T>,
    ) -> io::Result<bool> {
        while !session.upgrade.is_empty() {
            match bytes.write(&session.upgrade) {
                Ok(length) => drop(session.upgrade.drain(..length)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        bytes.flush()?;
        session.settle(bytes)
    }

    #[inline]
    fn read<T: Transport>(
        &self,
        session: &mut Self::Session,
        mut bytes: Bytes<'_, T>,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        if session.early.is_empty() {
            return bytes.read(buffer);
        }
        let early = session.early.len().min(buffer.len());
        buffer[..early].copy_from_slice(&session.early[..early]);
        session.early.drain(..early);
        // the caller takes a short read for an empty socket
        match bytes.read(&mut buffer[early..]) {
            Ok(length) => Ok(early + length),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(early),
            Err(error) => Err(error),
        }
    }

    #[inline]
    fn write<T: Transport>(
        &self,
        session: &mut Self::Session,
        mut bytes: Bytes<'_, T>,
        messages: &[u8],
    ) -> io::Result<usize> {
        if !session.is_inside && !session.write_control(&mut bytes)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let length = bytes.write(messages)?;
        session.is_inside = length < messages.len();
        Ok(length)
    }

    fn flush<T: Transport>(
        &self,
        session: &mut Self::Session,
        mut bytes: Bytes<'_, T>,
    ) -> io::Result<bool> {
        if !session.is_inside {
            session.write_control(&mut bytes)?;
        }
        let is_written = session.client.pending().is_empty();
        Ok(bytes.flush()? && is_written)
    }

    fn send_close<T: Transport>(&self, session: &mut Self::Session, bytes: Bytes<'_, T>) {
        let is_open = session.upgrade.is_empty() && !session.is_inside;
        if is_open {
            session.client.close();
            // the server may be gone already
            let _ = self.flush(session, bytes);
        }
    }

    #[inline]
    fn frames(session: &mut Self::Session) -> Option<&mut Client> {
        Some(&mut session.client)
    }
}
