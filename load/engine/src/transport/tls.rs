//! TLS over the same sockets. Nothing is verified, as with wrk: this is a load, not a visit.

use super::Transport;
use crate::plan::Target;
use crate::sys::socket::{self, Fd};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::Resumption;
use rustls::crypto::{ring, verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

/// HTTP/2 as ALPN calls it (RFC 9113, 3.1).
const HTTP2: &[u8] = b"h2";

/// Encrypts connections to the targets that ask for it.
pub struct Tls {
    config: Arc<ClientConfig>,
    names: Vec<Option<ServerName<'static>>>,
}

impl Tls {
    /// For these targets, with HTTP/2 as the only protocol or without a choice. Sessions are not resumed: each connection has its whole handshake.
    pub fn new(targets: &[Target], http2: bool) -> Result<Tls, String> {
        let provider = Arc::new(ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        if http2 {
            config.alpn_protocols = vec![HTTP2.to_vec()];
        }
        let names: Result<Vec<_>, String> = targets.iter().map(server_name).collect();
        Ok(Tls {
            config: Arc::new(config),
            names: names?,
        })
    }
}

fn server_name(target: &Target) -> Result<Option<ServerName<'static>>, String> {
    let Some(name) = &target.tls_name else {
        return Ok(None);
    };
    let parsed = ServerName::try_from(name.clone());
    parsed
        .map(Some)
        .map_err(|_| format!("{}: no name for a TLS handshake", target.url))
}

impl Transport for Tls {
    type Session = Option<Box<ClientConnection>>;
    const SHORT_READ_EMPTIES: bool = false;
    const HANDSHAKES: bool = true;

    fn begin(&self, target: usize) -> io::Result<Self::Session> {
        let Some(name) = &self.names[target] else {
            return Ok(None);
        };
        let session = ClientConnection::new(Arc::clone(&self.config), name.clone());
        let mut session = session.map_err(io::Error::other)?;
        // a large body waits in the session instead of in pieces of our own
        session.set_buffer_limit(None);
        Ok(Some(Box::new(session)))
    }

    fn handshake(&self, session: &mut Self::Session, fd: Fd) -> io::Result<bool> {
        let Some(tls) = session else { return Ok(true) };
        loop {
            if !write_out(tls, fd)? {
                return Ok(false);
            }
            if !tls.is_handshaking() {
                return Ok(true);
            }
            match tls.read_tls(&mut Socket(fd)) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => tls
                    .process_new_packets()
                    .map(drop)
                    .map_err(io::Error::other)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    fn chose_http2(&self, session: &Self::Session) -> bool {
        let protocol = session.as_ref().map(|tls| tls.alpn_protocol());
        protocol.is_none_or(|chosen| chosen == Some(HTTP2))
    }

    fn read(&self, session: &mut Self::Session, fd: Fd, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = session else {
            return socket::read(fd, buffer);
        };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                result => return result,
            }
            // an end without close_notify makes the reader say UnexpectedEof
            tls.read_tls(&mut Socket(fd))?;
            tls.process_new_packets().map_err(io::Error::other)?;
        }
    }

    fn write(&self, session: &mut Self::Session, fd: Fd, bytes: &[u8]) -> io::Result<usize> {
        let Some(tls) = session else {
            return socket::write(fd, bytes);
        };
        let taken = tls.writer().write(bytes)?;
        write_out(tls, fd)?;
        Ok(taken)
    }

    fn flush(&self, session: &mut Self::Session, fd: Fd) -> io::Result<bool> {
        session.as_mut().map_or(Ok(true), |tls| write_out(tls, fd))
    }
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

/// Takes every certificate; signatures are still checked, so that their cost is real.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
