//! Early data of TLS (0-RTT): the first request of a connection goes out with the handshake, and is sent
//! again where the server does not take it.

#[path = "support/https.rs"]
mod https;
mod support;

use https::{listening_in_turn, Stream};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache};
use rustls::ServerConfig;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use support::{count, measured, run};

/// Early data that a server takes on each connection, as OpenSSL by default.
const EARLY_BYTES: u32 = 16 * 1024;

/// A request as the server saw it.
struct Seen {
    bytes: usize,
    early_bytes: usize,
}

type Log = Arc<Mutex<Vec<Seen>>>;

/// The configuration of a server that remembers sessions.
fn config(early_bytes: u32) -> ServerConfig {
    let names = vec!["localhost".to_string()];
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.key_pair.serialize_der()).expect("a key");
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a certificate and its key");
    config.session_storage = ServerSessionMemoryCache::new(1024);
    config.max_early_data_size = early_bytes;
    config
}

/// Takes one request of a length, however it comes, answers it and ends the connection.
fn answer(mut stream: Stream, length: usize, log: &Log) {
    while stream.conn.is_handshaking() {
        if stream.conn.complete_io(&mut stream.sock).is_err() {
            return;
        }
    }
    let mut seen = Vec::new();
    if let Some(mut early) = stream.conn.early_data() {
        early.read_to_end(&mut seen).expect("what has come");
    }
    let early_bytes = seen.len();
    let mut buffer = [0; 4096];
    while seen.len() < length {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(n) => seen.extend_from_slice(&buffer[..n]),
        }
    }
    assert!(seen.starts_with(b"GET / HTTP/1.1\r\n") || seen.starts_with(b"POST / HTTP/1.1\r\n"));
    log.lock().expect("no panic").push(Seen {
        bytes: seen.len(),
        early_bytes,
    });
    let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let _ = stream.write_all(answer).and_then(|()| stream.flush());
    stream.conn.send_close_notify();
    let _ = stream.flush();
}

/// A server that takes each connection with the next of its configurations, the last again and
/// again.
fn server(configs: Vec<ServerConfig>, length: usize) -> (SocketAddr, Log) {
    let log = Log::default();
    let own = Arc::clone(&log);
    let address = listening_in_turn(configs, move |stream| answer(stream, length, &own));
    (address, log)
}

/// The length of a request without a body to a server.
fn request_bytes(address: SocketAddr) -> usize {
    format!(
        "GET / HTTP/1.1\r\nHost: localhost:{}\r\n\r\n",
        address.port()
    )
    .len()
}

fn url(address: SocketAddr) -> String {
    format!("https://localhost:{}/", address.port())
}

/// A port has five digits, so all requests have the length of one to port 10000.
fn usual_bytes() -> usize {
    request_bytes(([127, 0, 0, 1], 10_000).into())
}

fn early(log: &Log) -> usize {
    let log = log.lock().expect("no panic");
    log.iter().filter(|seen| seen.early_bytes > 0).count()
}

#[test]
fn first_requests_of_resumed_sessions_are_early_data() {
    let (address, log) = server(vec![config(EARLY_BYTES)], usual_bytes());
    let line = |more: &str| format!("-t1 -c1 -n 20 -d 60s -T 30s {more} {}", url(address));
    let late = measured(&line("--tls-resume"));
    assert_eq!(
        (count(&late, "/totals/tls_early"), early(&log)),
        (0, 0),
        "not wanted"
    );
    let result = measured(&line("--early-data"));
    assert_eq!(
        (
            count(&result, "/totals/completed"),
            count(&result, "/errors/total")
        ),
        (20, 0),
        "{}",
        result["errors"]
    );
    let taken = count(&result, "/totals/tls_early");
    assert_eq!(taken, early(&log) as u64);
    // the first connection has no session to resume
    assert_eq!((taken, count(&result, "/totals/tls_resumed")), (19, 19));
    assert_eq!(count(&result, "/latency/tls/count"), 1);
}

#[test]
fn a_rate_is_sent_as_early_data_too() {
    let (address, log) = server(vec![config(EARLY_BYTES)], usual_bytes());
    let result = measured(&format!(
        "-t1 -c2 -R 50 -d 500ms -T 30s --early-data {}",
        url(address)
    ));
    assert_eq!(
        (
            count(&result, "/totals/completed"),
            count(&result, "/errors/total")
        ),
        (25, 0),
        "{}",
        result["errors"]
    );
    assert_eq!(count(&result, "/totals/tls_early"), early(&log) as u64);
    assert!(early(&log) > 0);
}

#[test]
fn early_data_that_the_server_refuses_is_sent_again() {
    let generous = config(EARLY_BYTES);
    let mut strict = generous.clone();
    strict.max_early_data_size = 0;
    let mut forgetful = generous.clone();
    forgetful.session_storage = Arc::new(NoServerSessionStorage {});
    for (other, resumed) in [(strict, 1), (forgetful, 0)] {
        let (address, log) = server(vec![generous.clone(), other], usual_bytes());
        let result = measured(&format!(
            "-t1 -c1 -n 10 -d 60s -T 30s --early-data {}",
            url(address)
        ));
        assert_eq!(
            (
                count(&result, "/totals/completed"),
                count(&result, "/errors/total")
            ),
            (10, 0),
            "{}",
            result["errors"]
        );
        assert_eq!((count(&result, "/totals/tls_early"), early(&log)), (0, 0));
        assert!(count(&result, "/totals/tls_resumed") >= resumed);
        let log = log.lock().expect("no panic");
        assert!(log.len() == 10 && log.iter().all(|seen| seen.bytes == usual_bytes()));
    }
}

#[test]
fn a_request_longer_than_the_server_takes_early_comes_whole() {
    const BODY: usize = 400_000;
    let head =
        format!("POST / HTTP/1.1\r\nHost: localhost:10000\r\nContent-Length: {BODY}\r\n\r\n");
    let whole = head.len() + BODY;
    let file = support::temporary("body");
    std::fs::write(&file, vec![b'x'; BODY]).expect("a file");
    let generous = config(EARLY_BYTES);
    let mut forgetful = generous.clone();
    forgetful.session_storage = Arc::new(NoServerSessionStorage {});
    // rustls counts a record that it skips as it is encrypted, and once more with each read until the
    // next record is complete
    forgetful.max_early_data_size = 1 << 20;
    for (configs, taken) in [(vec![generous.clone()], 5), (vec![generous, forgetful], 0)] {
        let (address, log) = server(configs, whole);
        let result = measured(&format!(
            "-t1 -c1 -n 6 -d 60s -T 30s --early-data --body-file {} {}",
            file.display(),
            url(address)
        ));
        assert_eq!(
            (
                count(&result, "/totals/completed"),
                count(&result, "/errors/total")
            ),
            (6, 0),
            "{}",
            result["errors"]
        );
        assert_eq!(count(&result, "/totals/tls_early"), taken);
        let log = log.lock().expect("no panic");
        let is_part = |seen: &&Seen| seen.early_bytes == EARLY_BYTES as usize;
        assert_eq!(log.iter().filter(is_part).count(), taken as usize);
        assert!(log.iter().all(|seen| seen.bytes == whole));
    }
    std::fs::remove_file(&file).expect("ours");
}

#[test]
fn mistakes_are_named() {
    let (address, _) = server(vec![config(EARLY_BYTES)], usual_bytes());
    let (https, wss) = (url(address), format!("wss://{address}/"));
    for (words, message) in [
        (
            "http://127.0.0.1:1/".to_string(),
            "is for https:// and wss://",
        ),
        (format!("--http2 {https}"), "does not work with --http2"),
        (wss, "does not work with wss://"),
        (
            format!("--tls-version 1.2 {https}"),
            "needs TLS 1.3 (--tls-version)",
        ),
    ] {
        let output = run(&format!("--early-data {words}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        let expected = format!("wirespeed-load: --early-data: {message}\n");
        assert!(
            errors == expected || words.starts_with("http:"),
            "{words}: {errors}"
        );
        assert_ne!(output.status.code(), Some(0));
    }
}
