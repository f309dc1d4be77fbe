//! Servers of HTTP/3 by others who read the same RFCs: quinn for QUIC, h3 for HTTP/3. What a test wants
//! that h3 does not do is written by hand on quinn's streams.
#![allow(dead_code, reason = "each test file uses a part of it")]

use bytes::{Buf, Bytes};
use h3::error::{Code, StreamError};
use h3::server::RequestResolver;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::crypto::{CryptoError, HmacKey};
use quinn::{Connection, ConnectionId, ConnectionIdGenerator, Endpoint, EndpointConfig};
use quinn::{SendStream, ServerConfig, TokioRuntime, TransportConfig};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use std::collections::HashMap;
use std::future::Future;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

/// A request as a server of h3 saw it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Number of the connection.
    pub connection: usize,
    /// Method.
    pub method: String,
    /// The whole URI.
    pub uri: String,
    /// Fields, sorted.
    pub fields: Vec<String>,
    /// Length of its body.
    pub body_bytes: usize,
}

/// What a server does with a request.
pub enum Reply {
    /// It answers 200 with so many bytes.
    Body(usize),
    /// It answers 200 with `hello` and a token.
    Hello,
    /// It resets the stream.
    Reset,
}

/// A server on a free port; its thread ends with the test's process.
pub struct Http3Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its certificate.
    pub certificate: Vec<u8>,
    connections: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// How a server speaks QUIC.
#[derive(Default)]
pub struct Manners {
    /// Parameters of its connections.
    pub transport: TransportConfig,
    /// Those of its socket.
    pub endpoint: EndpointConfig,
    /// It validates the addresses of clients by a Retry (RFC 9000, 8.1.2).
    pub retries: bool,
}

/// Signs as any other one does: what one server signs another one knows.
struct SameKey;

impl HmacKey for SameKey {
    fn sign(&self, data: &[u8], signature: &mut [u8]) {
        for (place, byte) in signature.iter_mut().enumerate() {
            *byte = data[place % data.len()].wrapping_add(place as u8);
        }
    }

    fn signature_len(&self) -> usize {
        32
    }

    fn verify(&self, _data: &[u8], _signature: &[u8]) -> Result<(), CryptoError> {
        Ok(())
    }
}

/// Names that each server takes for its own.
struct Numbers(Arc<AtomicUsize>);

impl ConnectionIdGenerator for Numbers {
    fn generate_cid(&mut self) -> ConnectionId {
        let number = self.0.fetch_add(1, Ordering::SeqCst);
        ConnectionId::new(&number.to_be_bytes())
    }

    fn cid_len(&self) -> usize {
        size_of::<usize>()
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Two servers that know of none of each other's connections, and can reset them.
pub fn successors() -> [EndpointConfig; 2] {
    let next: Arc<AtomicUsize> = Arc::default();
    std::array::from_fn(|_| {
        let next = Arc::clone(&next);
        let mut endpoint = EndpointConfig::new(Arc::new(SameKey));
        endpoint.cid_generator(move || Box::new(Numbers(Arc::clone(&next))));
        endpoint
    })
}

/// The task of a connection.
type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Http3Server {
    /// h3 reads the requests, and `reply` says what becomes of each. It greases settings, frames and
    /// streams.
    pub fn start(reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Http3Server {
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (own, reply) = (Arc::clone(&asked), Arc::new(reply));
        let mut server = Http3Server::listen(Manners::default(), move |connection, number| {
            let (asked, reply) = (Arc::clone(&own), Arc::clone(&reply));
            Box::pin(serve(connection, move |one: Asked| {
                let one = Asked {
                    connection: number,
                    ..one
                };
                let reply = reply(&one);
                asked.lock().expect("no panic").push(one);
                reply
            }))
        });
        server.asked = asked;
        server
    }

    /// Says hello.
    pub fn hello() -> Http3Server {
        Http3Server::start(|_| Reply::Hello)
    }

    /// `serve` has each connection with its number, and writes what it likes.
    pub fn by_hand<R: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(Connection, usize) -> R + Send + Sync + 'static,
    ) -> Http3Server {
        Http3Server::by_hand_with(TransportConfig::default(), serve)
    }

    /// As [`Http3Server::by_hand`], with parameters of QUIC.
    pub fn by_hand_with<R: Future<Output = ()> + Send + 'static>(
        transport: TransportConfig,
        serve: impl Fn(Connection, usize) -> R + Send + Sync + 'static,
    ) -> Http3Server {
        let manners = Manners {
            transport,
            ..Manners::default()
        };
        Http3Server::by_hand_as(manners, serve)
    }

    /// As [`Http3Server::by_hand`], in a manner of its own.
    pub fn by_hand_as<R: Future<Output = ()> + Send + 'static>(
        manners: Manners,
        serve: impl Fn(Connection, usize) -> R + Send + Sync + 'static,
    ) -> Http3Server {
        Http3Server::listen(manners, move |connection, number| {
            Box::pin(serve(connection, number))
        })
    }

    fn listen(
        manners: Manners,
        serve: impl Fn(Connection, usize) -> Serving + Send + Sync + 'static,
    ) -> Http3Server {
        let names = vec!["localhost".to_string()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let certificate = made.cert.der().to_vec();
        let config = configuration(&made, manners.transport);
        let connections: Arc<AtomicUsize> = Arc::default();
        let (own, serve) = (Arc::clone(&connections), Arc::new(serve));
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
                let runtime = Arc::new(TokioRuntime);
                let endpoint = Endpoint::new(manners.endpoint, Some(config), socket, runtime);
                let endpoint = endpoint.expect("a socket of tokio");
                tell.send(endpoint.local_addr()).expect("the test waits");
                while let Some(incoming) = endpoint.accept().await {
                    if manners.retries && !incoming.remote_address_validated() {
                        incoming.retry().expect("the first time");
                        continue;
                    }
                    let (serve, own) = (Arc::clone(&serve), Arc::clone(&own));
                    tokio::spawn(async move {
                        if let Ok(connection) = incoming.await {
                            let number = own.fetch_add(1, Ordering::SeqCst);
                            serve(connection, number).await;
                        }
                    });
                }
            });
        });
        let address = told.recv().expect("the server starts").expect("bound");
        Http3Server {
            address,
            certificate,
            connections,
            asked: Arc::default(),
        }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("https://{}/", self.address)
    }

    /// How many connections were established so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Everything it was asked so far.
    pub fn seen(&self) -> Vec<Asked> {
        self.asked.lock().expect("no panic").clone()
    }
}

fn configuration(made: &rcgen::CertifiedKey, transport: TransportConfig) -> ServerConfig {
    let key = PrivateKeyDer::try_from(made.key_pair.serialize_der()).expect("a key");
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("a version")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a usable key");
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = QuicServerConfig::try_from(tls).expect("a suite for QUIC");
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    config
}

/// Serves a connection with h3.
async fn serve(
    connection: Connection,
    reply: impl Fn(Asked) -> Reply + Clone + Send + Sync + 'static,
) {
    let made = h3::server::builder()
        .send_grease(true)
        .build(h3_quinn::Connection::new(connection))
        .await;
    let Ok(mut own) = made else { return };
    while let Ok(Some(resolver)) = own.accept().await {
        let reply = reply.clone();
        tokio::spawn(async move {
            // the client may go away at any time
            let _ = answer(resolver, reply).await;
        });
    }
}

async fn answer(
    resolver: RequestResolver<h3_quinn::Connection, Bytes>,
    reply: impl Fn(Asked) -> Reply,
) -> Result<(), StreamError> {
    let (request, mut stream) = resolver.resolve_request().await?;
    let mut body_bytes = 0;
    while let Some(piece) = stream.recv_data().await? {
        body_bytes += piece.remaining();
    }
    let fields = request.headers().iter();
    let mut fields: Vec<String> = fields
        .map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    fields.sort();
    let reply = reply(Asked {
        connection: 0,
        method: request.method().to_string(),
        uri: request.uri().to_string(),
        fields,
        body_bytes,
    });
    let body = match reply {
        Reply::Reset => {
            stream.stop_stream(Code::H3_INTERNAL_ERROR);
            return Ok(());
        }
        Reply::Hello => Bytes::from_static(b"hello"),
        Reply::Body(bytes) => vec![b'z'; bytes].into(),
    };
    let head = http::Response::builder()
        .header("x-token", "t1")
        .header("content-length", body.len())
        .body(())
        .expect("a head");
    stream.send_response(head).await?;
    if !body.is_empty() {
        stream.send_data(body).await?;
    }
    stream.finish().await
}

/// A response with the body `hello`: HEADERS with `:status: 200` (static 25), DATA.
pub const HELLO: &[u8] = b"\x01\x03\0\0\xd9\0\x05hello";

/// A control stream with SETTINGS that have nothing.
pub const CONTROL: &[u8] = b"\0\x04\0";

/// Opens a stream and writes these bytes; it stays open as long as what is returned.
pub async fn say(connection: &Connection, bytes: &[u8]) -> SendStream {
    let mut stream = connection.open_uni().await.expect("the client allows it");
    stream.write_all(bytes).await.expect("it is open");
    stream
}

/// The next request, read to its end and not understood: its number on the connection, and the stream of
/// its response. Nothing at the end of the connection.
pub async fn request(connection: &Connection) -> Option<(u64, SendStream)> {
    const REQUEST_MAX: usize = 1 << 20;
    let (send, mut receive) = connection.accept_bi().await.ok()?;
    receive.read_to_end(REQUEST_MAX).await.ok()?;
    Some((send.id().index(), send))
}

/// Writes the bytes of one response and ends its stream.
pub async fn respond(mut stream: SendStream, bytes: &[u8]) {
    // the client may go away at any time
    let _ = stream.write_all(bytes).await;
    let _ = stream.finish();
}

/// Answers every request.
pub async fn respond_always(connection: &Connection) {
    while let Some((_, stream)) = request(connection).await {
        respond(stream, HELLO).await;
    }
}

/// A way to a server that loses datagrams: `passes` is asked of each with the number of the client it
/// belongs to. Its thread ends with the test's process.
pub fn lossy_way(
    to: SocketAddr,
    passes: impl Fn(usize) -> bool + Send + Sync + 'static,
) -> SocketAddr {
    way(move || to, passes)
}

/// As [`lossy_way`], to a server that may be another one for each datagram.
pub fn way(
    to: impl Fn() -> SocketAddr + Send + 'static,
    passes: impl Fn(usize) -> bool + Send + Sync + 'static,
) -> SocketAddr {
    let near = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a port"));
    let address = near.local_addr().expect("bound");
    let passes = Arc::new(passes);
    std::thread::spawn(move || {
        let mut far: HashMap<SocketAddr, (usize, Arc<UdpSocket>)> = HashMap::new();
        let mut buffer = [0; 65_536];
        while let Ok((length, from)) = near.recv_from(&mut buffer) {
            let next = far.len();
            let (number, socket) = far.entry(from).or_insert_with(|| {
                let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("a port"));
                back(&socket, &near, from, next, Arc::clone(&passes));
                (next, socket)
            });
            if passes(*number) {
                // a server that is gone has nothing to lose
                let _ = socket.send_to(&buffer[..length], to());
            }
        }
    });
    address
}

/// Carries what the server says back to a client.
fn back(
    far: &Arc<UdpSocket>,
    near: &Arc<UdpSocket>,
    to: SocketAddr,
    number: usize,
    passes: Arc<impl Fn(usize) -> bool + Send + Sync + 'static>,
) {
    let (far, near) = (Arc::clone(far), Arc::clone(near));
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(length) = far.recv(&mut buffer) {
            if passes(number) {
                let _ = near.send_to(&buffer[..length], to);
            }
        }
    });
}

/// Lets others on the server's thread go first, so that quinn sends what was written in a packet of its own.
pub async fn pause() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
