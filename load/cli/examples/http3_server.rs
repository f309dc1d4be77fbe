//! The server of `load/bench/compare.py --server quinn`: HTTP/1.1 and HTTP/2 over TLS and HTTP/3 at one
//! port, on one thread. `/N` is answered with N bytes.

use bytes::{Bytes, BytesMut};
use h3::server::RequestResolver;
use http::Response;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, Incoming, ServerConfig, TransportConfig};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;
use tokio_rustls::TlsAcceptor;

type Failure = Box<dyn Error + Send + Sync>;

/// Streams at once on a connection.
const STREAMS: u32 = 200;
/// The longest page.
const PAGE_BYTES: usize = 1 << 20;

static PAGE: [u8; PAGE_BYTES] = [b'x'; PAGE_BYTES];

fn main() -> Result<(), Failure> {
    let port = std::env::args().nth(1).ok_or("usage: http3_server PORT")?;
    let address = SocketAddr::from(([127, 0, 0, 1], port.parse()?));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(address))
}

async fn serve(address: SocketAddr) -> Result<(), Failure> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_string()])?;
    let crypto = QuicServerConfig::try_from(tls(&made, &[b"h3"])?)?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(STREAMS.into());
    config.transport_config(Arc::new(transport));
    let endpoint = Endpoint::server(config, address)?;
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            tokio::spawn(http3(incoming));
        }
    });
    let acceptor = TlsAcceptor::from(Arc::new(tls(&made, &[b"h2", b"http/1.1"])?));
    let listener = TcpListener::bind(address).await?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(encrypted(acceptor.clone(), stream));
    }
}

fn tls(made: &rcgen::CertifiedKey, protocols: &[&[u8]]) -> Result<rustls::ServerConfig, Failure> {
    let key = PrivateKeyDer::try_from(made.key_pair.serialize_der())?;
    let mut tls = rustls::ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    tls.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(tls)
}

async fn encrypted(acceptor: TlsAcceptor, stream: TcpStream) -> Result<(), Failure> {
    let stream = acceptor.accept(stream).await?;
    let protocol = stream.get_ref().1.alpn_protocol();
    if protocol == Some(b"h2") {
        http2(stream).await
    } else {
        http1(stream).await
    }
}

async fn http1(mut stream: TlsStream<TcpStream>) -> Result<(), Failure> {
    let mut received = BytesMut::with_capacity(16 * 1024);
    while stream.read_buf(&mut received).await? > 0 {
        while let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
            let request = received.split_to(end + 4);
            let path = std::str::from_utf8(&request)?.split(' ').nth(1);
            let page = page(path.ok_or("a request without a path")?)?;
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
            stream
                .write_all(&[head.as_bytes(), &page[..]].concat())
                .await?;
        }
    }
    Ok(())
}

async fn http2(stream: TlsStream<TcpStream>) -> Result<(), Failure> {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(STREAMS);
    let mut connection = builder.handshake(stream).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, mut respond) = accepted?;
        let page = page(request.uri().path())?;
        let mut stream = respond.send_response(head(&page)?, page.is_empty())?;
        if !page.is_empty() {
            stream.send_data(page, true)?;
        }
    }
    Ok(())
}

async fn http3(incoming: Incoming) -> Result<(), Failure> {
    let connection = h3_quinn::Connection::new(incoming.await?);
    let mut connection = h3::server::builder().build(connection).await?;
    while let Some(resolver) = connection.accept().await? {
        tokio::spawn(answer(resolver));
    }
    Ok(())
}

async fn answer(resolver: RequestResolver<h3_quinn::Connection, Bytes>) -> Result<(), Failure> {
    let (request, mut stream) = resolver.resolve_request().await?;
    let page = page(request.uri().path())?;
    stream.send_response(head(&page)?).await?;
    if !page.is_empty() {
        stream.send_data(page).await?;
    }
    Ok(stream.finish().await?)
}

fn head(page: &Bytes) -> Result<Response<()>, Failure> {
    let head = Response::builder().header("content-length", page.len());
    Ok(head.body(())?)
}

/// As many bytes as the path says.
fn page(path: &str) -> Result<Bytes, Failure> {
    let bytes: usize = path.trim_start_matches('/').parse()?;
    let page = PAGE.get(..bytes).ok_or("a longer page than there is")?;
    Ok(Bytes::from_static(page))
}
