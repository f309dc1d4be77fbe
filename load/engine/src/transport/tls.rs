//! TLS over the same sockets.
//!
//! With early data a connection that has a session to resume takes its first request before the
//! handshake: both go out together (RFC 8446, 2.3), and the handshake goes on while the response is
//! awaited.

use super::tls_config::{configuration, TlsFault};
use super::{EarlyEnds, Transport};
use crate::plan::{Target, TlsOptions};
use crate::sys::socket::{self, Fd};
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, ClientConfig, ClientConnection, HandshakeKind};
use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

/// HTTP/2 as ALPN calls it (RFC 9113, 3.1).
const HTTP2: &[u8] = b"h2";

/// A record of TLS with its head and what encryption adds (RFC 8446, 5.2).
const RECORD_BYTES: usize = 16_384 + 256 + 5;
/// Bytes that one read takes from a socket.
const RECEIVED_BYTES: usize = 64 * 1024;
/// Bytes that a session holds encrypted until there is room for them.
const UNSENT_BYTES: usize = 256 * 1024;

/// Encrypts connections to the targets that ask for it.
pub struct Tls {
    config: Arc<ClientConfig>,
    names: Vec<Option<ServerName<'static>>>,
    /// Encrypted bytes of one read.
    received: RefCell<Vec<u8>>,
    /// Whether the last read has emptied its socket.
    emptied: Cell<bool>,
    /// Handshakes that ended behind their first request since they were asked for.
    early_ends: Cell<EarlyEnds>,
}

/// The TLS of a connection.
pub struct Session {
    tls: ClientConnection,
    /// Requests that were written before the handshake was over.
    early: Option<Early>,
    /// The error behind the bytes that were read last.
    fault: Option<rustls::Error>,
}

/// Bytes that the server may have to be sent again: it decides in the handshake whether it takes
/// them.
#[derive(Default)]
struct Early {
    bytes: Vec<u8>,
    /// So many of them are encrypted.
    sent: usize,
    /// The handshake has ended, and the server's decision is known.
    is_decided: bool,
}

impl Session {
    /// Encrypts what was written early and is not sent yet; true once that is all of it.
    fn push_early(&mut self) -> io::Result<bool> {
        let Some(early) = &mut self.early else {
            return Ok(true);
        };
        let rest = &early.bytes[early.sent..];
        if !self.tls.is_handshaking() {
            early.sent += self.tls.writer().write(rest)?;
        } else if let Some(mut writer) = self.tls.early_data() {
            early.sent += writer.write(rest)?;
        }
        Ok(early.sent == early.bytes.len())
    }

    /// Writes what the session holds; false if the socket has no room for all of it, or if the
    /// handshake must end first.
    fn write_out(&mut self, fd: Fd) -> io::Result<bool> {
        loop {
            let is_pushed = self.push_early()?;
            if !write_out(&mut self.tls, fd)? {
                return Ok(false);
            }
            if is_pushed {
                return Ok(true);
            }
            if self.tls.is_handshaking() {
                return Ok(false);
            }
        }
    }
}

impl Tls {
    /// For these targets, with HTTP/2 as the only protocol or without a choice.
    pub fn new(targets: &[Target], http2: bool, options: &TlsOptions) -> Result<Tls, TlsFault> {
        let mut config = configuration(options)?;
        if http2 {
            config.alpn_protocols = vec![HTTP2.to_vec()];
        }
        let names = targets.iter().map(|target| server_name(target, options));
        Ok(Tls {
            config: Arc::new(config),
            names: names.collect::<Result<_, _>>()?,
            received: RefCell::new(vec![0; RECEIVED_BYTES]),
            emptied: Cell::new(false),
            early_ends: Cell::default(),
        })
    }

    /// Goes on with a connection that took its first request before the handshake, after something
    /// was read.
    #[cold]
    fn go_on_early(&self, session: &mut Session, fd: Fd) -> io::Result<()> {
        if session.tls.is_handshaking() {
            return session.write_out(fd).map(drop);
        }
        if let Some(early) = session.early.as_mut().filter(|early| !early.is_decided) {
            let mut ends = self.early_ends.get();
            let is_resumed = session.tls.handshake_kind() == Some(HandshakeKind::Resumed);
            ends.resumed += u64::from(is_resumed);
            if session.tls.is_early_data_accepted() {
                ends.accepted += u64::from(early.sent > 0);
            } else {
                // the server has dropped it
                early.sent = 0;
            }
            early.is_decided = true;
            self.early_ends.set(ends);
        }
        // what finds no room is held by the session, unless it is more than that
        if session.push_early()? {
            session.early = None;
        }
        session.write_out(fd).map(drop)
    }

    /// Decrypts bytes that came from the socket: how many of the buffer are filled then, and whether
    /// no more will come: the other side has said so, or broken the rules.
    fn decrypt(
        &self,
        session: &mut Session,
        mut received: &[u8],
        buffer: &mut [u8],
    ) -> io::Result<(usize, bool)> {
        let (tls, mut filled) = (&mut session.tls, 0);
        loop {
            // the session learns of an end by a read of nothing
            tls.read_tls(&mut received)?;
            let (is_over, fault) = match tls.process_new_packets() {
                Ok(state) => (state.peer_has_closed(), None),
                Err(fault) => (true, Some(fault)),
            };
            match tls.reader().read(&mut buffer[filled..]) {
                Ok(length) => filled += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock || fault.is_some() => {}
                // what came before the end is taken first; the end is met again
                Err(error) if filled == 0 => return Err(error),
                Err(_) => return Ok((filled, true)),
            }
            if let Some(fault) = fault {
                // a whole response counts, whatever comes behind it
                if filled == 0 {
                    return Err(io::Error::other(fault));
                }
                session.fault = Some(fault);
                return Ok((filled, true));
            }
            if received.is_empty() {
                return if filled > 0 || is_over {
                    Ok((filled, is_over))
                } else {
                    Err(ErrorKind::WouldBlock.into())
                };
            }
        }
    }
}

/// The name of a target in handshakes; nothing where there is none.
pub(crate) fn server_name(
    target: &Target,
    options: &TlsOptions,
) -> Result<Option<ServerName<'static>>, TlsFault> {
    let Some(name) = &target.tls_name else {
        return Ok(None);
    };
    let name = options.name.as_ref().unwrap_or(name);
    let parsed = ServerName::try_from(name.clone());
    parsed.map(Some).map_err(|_| TlsFault::Name {
        url: target.url.clone(),
    })
}

impl Transport for Tls {
    type Session = Option<Box<Session>>;
    const HANDSHAKES: bool = true;

    fn begin(&self, target: usize) -> io::Result<Self::Session> {
        let Some(name) = &self.names[target] else {
            return Ok(None);
        };
        let tls = ClientConnection::new(Arc::clone(&self.config), name.clone());
        let mut tls = tls.map_err(io::Error::other)?;
        // of a large body a part at a time is encrypted; the rest waits unencrypted, once for all
        tls.set_buffer_limit(Some(UNSENT_BYTES));
        let early = tls.early_data().map(|_| Early::default());
        Ok(Some(Box::new(Session {
            tls,
            early,
            fault: None,
        })))
    }

    fn handshake(&self, session: &mut Self::Session, fd: Fd) -> io::Result<bool> {
        let Some(Session {
            tls, early: None, ..
        }) = session.as_deref_mut()
        else {
            return Ok(true);
        };
        loop {
            if !write_out(tls, fd)? {
                return Ok(false);
            }
            if !tls.is_handshaking() {
                return Ok(true);
            }
            match tls.read_tls(&mut Socket(fd)) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    if let Err(error) = tls.process_new_packets() {
                        // the server learns why (RFC 8446, 6.2), unless it is gone already
                        let _ = write_out(tls, fd);
                        return Err(no_handshake(error));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn chose_http2(&self, session: &Self::Session) -> bool {
        let protocol = session.as_ref().map(|session| session.tls.alpn_protocol());
        protocol.is_none_or(|chosen| chosen == Some(HTTP2))
    }

    fn was_resumed(&self, session: &Self::Session) -> bool {
        let kind = session
            .as_ref()
            .and_then(|session| session.tls.handshake_kind());
        kind == Some(HandshakeKind::Resumed)
    }

    fn is_early(&self, session: &Self::Session) -> bool {
        let session = session.as_ref();
        session.is_some_and(|session| session.early.is_some())
    }

    #[inline]
    fn take_early_ends(&self) -> EarlyEnds {
        self.early_ends.take()
    }

    fn emptied(&self, _length: usize, _room: usize) -> bool {
        self.emptied.get()
    }

    fn read(&self, session: &mut Self::Session, fd: Fd, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(session) = session else {
            let length = socket::read(fd, buffer)?;
            self.emptied.set(length < buffer.len());
            return Ok(length);
        };
        self.emptied.set(false);
        // what a handshake or an earlier read has left
        match session.tls.reader().read(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            result => return result,
        }
        if let Some(fault) = session.fault.take() {
            return Err(io::Error::other(fault));
        }
        let mut received = self.received.borrow_mut();
        loop {
            // what is decrypted, with the part of a record that came before, fits the buffer
            let spare = buffer
                .len()
                .saturating_sub(RECORD_BYTES)
                .max(buffer.len() / 2);
            let room = received.len().min(spare);
            let length = socket::read(fd, &mut received[..room])?;
            let is_empty = length < room;
            let decrypted = self.decrypt(session, &received[..length], buffer);
            let written = if session.early.is_some() {
                self.go_on_early(session, fd)
            } else {
                Ok(())
            };
            match decrypted {
                // a server that has answered may be gone: what it said comes first
                Ok((filled, is_over)) => {
                    self.emptied
                        .set(is_empty && !is_over && filled < buffer.len());
                    return Ok(filled);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    written?;
                    if is_empty {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn write(&self, session: &mut Self::Session, fd: Fd, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = session else {
            return socket::write(fd, bytes);
        };
        if let Some(early) = &mut session.early {
            early.bytes.extend_from_slice(bytes);
            session.write_out(fd)?;
            return Ok(bytes.len());
        }
        let tls = &mut session.tls;
        let mut taken = 0;
        loop {
            taken += tls.writer().write(&bytes[taken..])?;
            if !write_out(tls, fd)? || taken == bytes.len() {
                return Ok(taken);
            }
        }
    }

    fn flush(&self, session: &mut Self::Session, fd: Fd) -> io::Result<bool> {
        session
            .as_mut()
            .map_or(Ok(true), |session| session.write_out(fd))
    }

    /// RFC 8446, 6.1: each side says that it closes, or which error it has met.
    fn send_end(&self, session: &mut Self::Session, fd: Fd) {
        let session = session.as_mut().map(|session| &mut session.tls);
        let Some(tls) = session.filter(|tls| !tls.is_handshaking()) else {
            return;
        };
        // behind a fatal alert nothing more is said
        if tls.process_new_packets().is_ok() {
            tls.send_close_notify();
        }
        // the server may be gone already
        let _ = write_out(tls, fd);
    }
}

/// Why a handshake failed. A server that finds no cipher suite says no more than that.
fn no_handshake(error: rustls::Error) -> io::Error {
    if error == rustls::Error::AlertReceived(AlertDescription::HandshakeFailure) {
        let lacks = "CBC, key exchange by RSA or DHE, and P-521 are not offered";
        return io::Error::other(format!("{error} ({lacks})"));
    }
    io::Error::other(error)
}

/// Writes what the session holds; false if the socket has no room for all of it.
fn write_out(tls: &mut ClientConnection, fd: Fd) -> io::Result<bool> {
    while tls.wants_write() {
        match tls.write_tls(&mut Socket(fd)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// A descriptor as rustls wants to see it.
struct Socket(Fd);

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        socket::read(self.0, buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        socket::write(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
