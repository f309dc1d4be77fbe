//! Servers of https with certificates of their own.
#![allow(dead_code, reason = "each test file uses a part of it")]

use super::support::HELLO;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// The server's end of a connection.
pub type Stream = StreamOwned<ServerConnection, TcpStream>;

/// Answers everything.
pub fn https() -> SocketAddr {
    serving(echo)
}

/// Answers every read.
pub fn echo(mut stream: Stream) {
    let mut buffer = [0; 4096];
    while stream.read(&mut buffer).is_ok_and(|n| n > 0) {
        let written = stream.write_all(HELLO).and_then(|()| stream.flush());
        if written.is_err() {
            return;
        }
    }
}

/// A server with a certificate of its own; each connection is handed to `serve`.
pub fn serving(serve: impl Fn(Stream) + Send + Sync + 'static) -> SocketAddr {
    let names = vec!["localhost".to_string()];
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let certificate = made.cert.der().clone();
    serving_with(certificate, &made.key_pair, serve)
}

/// A server that shows a certificate, whatever is in it.
pub fn serving_with(
    certificate: CertificateDer<'static>,
    key: &rcgen::KeyPair,
    serve: impl Fn(Stream) + Send + Sync + 'static,
) -> SocketAddr {
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let key = ring::sign::any_supported_type(&key).expect("a usable key");
    let shown = CertifiedKey::new(vec![certificate], key);
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Shown(Arc::new(shown))));
    listening(config, serve)
}

/// A server with a configuration.
pub fn listening(
    config: ServerConfig,
    serve: impl Fn(Stream) + Send + Sync + 'static,
) -> SocketAddr {
    listening_in_turn(vec![config], serve)
}

/// A server that meets each connection with the next of its configurations, and all further ones with
/// the last. A connection that ends without a byte, as a test of whether the server is there, counts
/// as none.
pub fn listening_in_turn(
    configs: Vec<ServerConfig>,
    serve: impl Fn(Stream) + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listening_at(listener, configs, serve)
}

/// The same with a listener that is there.
pub fn listening_at(
    listener: TcpListener,
    configs: Vec<ServerConfig>,
    serve: impl Fn(Stream) + Send + Sync + 'static,
) -> SocketAddr {
    let mut configs: Vec<_> = configs.into_iter().rev().map(Arc::new).collect();
    let serve = Arc::new(serve);
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let is_test = configs.len() > 1 && stream.peek(&mut [0]).is_ok_and(|n| n == 0);
            if is_test {
                continue;
            }
            let config = if configs.len() > 1 {
                configs.pop()
            } else {
                configs.first().cloned()
            };
            let config = config.expect("at least one");
            let session = ServerConnection::new(config).expect("a session");
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(StreamOwned::new(session, stream)));
        }
    });
    address
}

/// Shows one certificate to everybody.
#[derive(Debug)]
struct Shown(Arc<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}
