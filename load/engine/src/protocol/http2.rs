//! HTTP/2: by prior knowledge over plain connections, chosen by ALPN over TLS.

use super::{Bytes, Protocol, RequestMeta};
use crate::transport::Transport;
use load_http2::{Client, Fault, Ignore};
use std::io::{self, ErrorKind};

/// Bytes of a server's first frames that are read at once.
const FIRST_BYTES: usize = 4096;

/// Carries requests on streams.
pub struct Http2 {
    /// So many at once on each connection.
    streams: u32,
}

impl Http2 {
    /// With so many streams at once on each connection.
    pub fn new(streams: usize) -> Http2 {
        Http2 {
            streams: streams as u32,
        }
    }
}

/// Reads a server's first frames; whether it has sent its settings.
fn settle<T: Transport>(
    client: &mut Client<RequestMeta>,
    mut bytes: Bytes<'_, T>,
) -> io::Result<bool> {
    let (mut buffer, mut events) = ([0; FIRST_BYTES], Vec::new());
    while !client.is_settled() {
        match bytes.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(length) => client
                .feed(&buffer[..length], &mut events, &mut Ignore)
                .map_err(no_http2)?,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn no_http2(fault: Fault) -> io::Error {
    let text = format!("the server does not speak HTTP/2 ({})", fault.name());
    io::Error::other(text)
}

impl Protocol for Http2 {
    type Session = Box<Client<RequestMeta>>;
    type Client = Client<RequestMeta>;
    const HANDSHAKES: bool = true;
    const STREAMS: bool = true;

    fn begin(&self, _target: usize) -> Self::Session {
        Box::new(Client::new(self.streams))
    }

    fn handshake<T: Transport>(
        &self,
        client: &mut Self::Session,
        mut bytes: Bytes<'_, T>,
    ) -> io::Result<bool> {
        if !bytes.chose_http2() {
            return Err(io::Error::other("the server did not choose HTTP/2"));
        }
        self.send_pending(client, bytes.lend())?;
        let is_settled = settle(client, bytes.lend())?;
        if client.is_going() {
            return Err(io::Error::other("the server is going away (GOAWAY)"));
        }
        self.send_pending(client, bytes)?;
        Ok(is_settled)
    }

    #[inline]
    fn client(client: &mut Self::Session) -> Option<&mut Client<RequestMeta>> {
        Some(client)
    }

    #[inline]
    fn send_pending<T: Transport>(
        &self,
        client: &mut Self::Session,
        mut bytes: Bytes<'_, T>,
    ) -> io::Result<usize> {
        let pending = client.pending();
        if pending.is_empty() {
            return Ok(0);
        }
        match bytes.write(pending) {
            Ok(length) => {
                client.written(length);
                Ok(length)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn send_close<T: Transport>(&self, client: &mut Self::Session, bytes: Bytes<'_, T>) {
        if client.close() {
            // the server may be gone already
            let _ = self.send_pending(client, bytes);
        }
    }
}
