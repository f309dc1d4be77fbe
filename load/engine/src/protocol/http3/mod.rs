//! HTTP/3: requests on streams of QUIC, which carries them and their encryption in datagrams.
//!
//! ```text
//! socket ─ datagrams ─► Quic (quinn-proto) ─ bytes of streams ─► Client (load-http3) ─► events
//! ```
//! [`quic::Quic`] is one connection of QUIC, and does no I/O of its own; [`client::Client`] is what
//! HTTP/3 does on its streams. A connection has a socket of its own, as one of TCP has.

mod client;
mod quic;

use super::{Bytes, InFlight, Protocol};
use crate::plan::{Target, TlsOptions};
use crate::transport::{server_name, TlsFault, Transport};
use client::Client;
use load_http2::Ignore;
use quic::{Configuration, Quic};
use std::cell::RefCell;
use std::io::{self, ErrorKind};

/// Bytes that one read takes while a handshake goes on: as many datagrams as the kernel hands over.
const RECEIVED_BYTES: usize = 64 * 1024;

/// So many reads of a handshake before other connections have their turn.
const READS_AT_ONCE: usize = 16;

/// Carries requests on streams of QUIC.
pub struct Http3 {
    /// So many at once on each connection.
    streams: u32,
    configuration: Configuration,
    /// The name of each target in handshakes.
    names: Vec<String>,
    /// Datagrams of a handshake.
    received: RefCell<Vec<u8>>,
}

impl Http3 {
    /// To these targets, with so many streams at once on each connection.
    pub fn new(streams: usize, targets: &[Target], tls: &TlsOptions) -> Result<Http3, TlsFault> {
        let names = targets.iter().map(|target| {
            let name = server_name(target, tls)?.ok_or_else(|| TlsFault::Name {
                url: target.url.clone(),
            })?;
            Ok(name.to_str().into_owned())
        });
        Ok(Http3 {
            streams: streams as u32,
            configuration: Configuration::new(tls)?,
            names: names.collect::<Result<_, _>>()?,
            received: RefCell::new(vec![0; RECEIVED_BYTES]),
        })
    }
}

impl Protocol for Http3 {
    type Session = Box<Client>;
    type Client = Client;
    const HANDSHAKES: bool = true;
    const STREAMS: bool = true;
    const TIMERS: bool = true;

    fn begin(&self, target: usize) -> Box<Client> {
        let quic = Quic::connect(&self.configuration, &self.names[target]);
        Box::new(Client::new(quic, self.streams))
    }

    fn handshake<T: Transport>(
        &self,
        client: &mut Box<Client>,
        mut bytes: Bytes<'_, T>,
    ) -> io::Result<bool> {
        let mut buffer = self.received.borrow_mut();
        for _ in 0..READS_AT_ONCE {
            // the server learns of a failure before the user does
            self.send_pending(client, bytes.lend())?;
            if client.is_connected() {
                // the worker reads what has come besides
                return Ok(true);
            }
            match self.read(client, bytes.lend(), &mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => client.take_first(&buffer[..length])?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.send_pending(client, bytes)?;
        Err(ErrorKind::Interrupted.into())
    }

    fn read<T: Transport>(
        &self,
        client: &mut Box<Client>,
        mut bytes: Bytes<'_, T>,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        if let Some(end) = client.quic.take_end() {
            return end.map(|()| 0);
        }
        let length = bytes.read(buffer)?;
        client.datagram_bytes = bytes.datagram_bytes();
        Ok(length)
    }

    fn send_pending<T: Transport>(
        &self,
        client: &mut Box<Client>,
        bytes: Bytes<'_, T>,
    ) -> io::Result<usize> {
        client.quic.transmit(bytes)?;
        Ok(client.take_sent())
    }

    /// The server learns that it need not keep the connection (RFC 9114, 5.3).
    fn send_close<T: Transport>(&self, client: &mut Box<Client>, bytes: Bytes<'_, T>) {
        client.close();
        // one that it does not learn of ends by its own timeout
        let _ = client.quic.transmit(bytes);
    }

    fn take_timer(&self, client: &mut Box<Client>) -> Option<u64> {
        let is_owed = client.open() > 0;
        client.quic.take_timer(&self.configuration, is_owed)
    }

    fn timer_came(&self, client: &mut Box<Client>, at_ns: u64) -> bool {
        let is_owed = client.open() > 0;
        client.quic.timer_came(at_ns, is_owed)
    }

    #[inline]
    fn client(client: &mut Box<Client>) -> Option<&mut Client> {
        Some(client)
    }
}

impl Client {
    /// Takes datagrams of the handshake.
    fn take_first(&mut self, datagrams: &[u8]) -> io::Result<()> {
        let mut events = Vec::new();
        let fed = self.feed(datagrams, &mut events, &mut Ignore);
        fed.map_err(|fault| {
            let text = format!("the server does not speak HTTP/3 ({})", fault.name());
            io::Error::other(text)
        })?;
        // what belongs to no request counts as little as the handshake of TLS
        self.count_read(0);
        if self.is_going() {
            return Err(io::Error::other("the server is going away (GOAWAY)"));
        }
        Ok(())
    }
}
