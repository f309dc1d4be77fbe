//! https: which certificates are taken, what is offered, and how both are chosen.

#[path = "support/https.rs"]
mod https;
mod support;

use https::{echo, https, listening, listening_at, serving, serving_with};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::ServerConfig;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use support::{count, measured, measured_or_not, run, unreached, wait_until};

/// An element of DER.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let length = u8::try_from(content.len()).expect("short");
    let head = if length < 0x80 {
        vec![tag, length]
    } else {
        vec![tag, 0x81, length]
    };
    [head, content].concat()
}

/// A certificate as X.509 had them first: without version and extensions, and without a signature.
fn first_version(key: &rcgen::KeyPair) -> CertificateDer<'static> {
    const SEQUENCE: u8 = 0x30;
    // ecdsa-with-SHA256
    let algorithm = der(SEQUENCE, &[b"\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"]);
    let name = der(SEQUENCE, &[]);
    let moment = der(0x17, &[b"260101000000Z"]);
    let validity = der(SEQUENCE, &[&moment, &moment]);
    let (number, key) = (der(0x02, &[b"\x01"]), key.public_key_der());
    let fields = [&number[..], &algorithm, &name, &validity, &name, &key];
    let signed = der(SEQUENCE, &fields);
    let signature = der(0x03, &[b"\x00\x00"]);
    der(SEQUENCE, &[&signed, &algorithm, &signature]).into()
}

#[test]
fn certificates_of_the_first_version_are_taken() {
    let key = rcgen::KeyPair::generate().expect("a key");
    let address = serving_with(first_version(&key), &key, echo);
    let result = measured(&format!("-t1 -c2 -d300ms -R50 -T30s https://{address}/"));
    assert_eq!(
        count(&result, "/totals/completed"),
        15,
        "{}",
        result["notes"]
    );
}

#[test]
fn a_signature_by_another_key_is_a_failed_handshake() {
    let (shown, own) = (rcgen::KeyPair::generate(), rcgen::KeyPair::generate());
    let (shown, own) = (shown.expect("a key"), own.expect("a key"));
    let address = serving_with(first_version(&shown), &own, echo);
    let output = run(&format!("-t1 -c2 -d300ms -T30s https://{address}/"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(
        errors.contains("attempts to connect succeeded: invalid peer certificate"),
        "{errors}"
    );
}

/// A program that ends with its test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn rsa_keys_of_1024_bits_are_taken() {
    if !support::is_installed("openssl") {
        return;
    }
    let (key, certificate) = (support::temporary("key"), support::temporary("pem"));
    let made = Command::new("openssl")
        .args("req -x509 -newkey rsa:1024 -nodes -days 2 -subj /CN=short".split(' '))
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output();
    assert!(made.is_ok_and(|made| made.status.success()));
    let child = Command::new("openssl")
        .args("s_server -accept 127.0.0.1:0 -www -cipher ALL:@SECLEVEL=0".split(' '))
        .arg("-key")
        .arg(&key)
        .arg("-cert")
        .arg(&certificate)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it was there a moment ago");
    let mut server = Running(child);
    let output = BufReader::new(server.0.stdout.take().expect("a pipe"));
    let port = output.lines().map_while(Result::ok).find_map(|line| {
        let (_, port) = line.strip_prefix("ACCEPT ")?.rsplit_once(':')?;
        port.parse::<u16>().ok()
    });
    let port = port.expect("it says where it listens");
    let result = measured(&format!(
        "-t1 -c1 -d500ms -R20 -T30s https://127.0.0.1:{port}/"
    ));
    for file in [key, certificate] {
        std::fs::remove_file(file).expect("ours");
    }
    assert!(
        count(&result, "/totals/completed") > 0,
        "{}",
        result["notes"]
    );
}

/// Writes what tests of certificates need: an authority, a server's certificate by it with its key,
/// and a client's certificate and key in one file.
struct Certificates {
    authority: std::path::PathBuf,
    identity: std::path::PathBuf,
    server: CertificateDer<'static>,
    server_key: rcgen::KeyPair,
    roots: Arc<rustls::RootCertStore>,
}

impl Drop for Certificates {
    fn drop(&mut self) {
        for file in [&self.authority, &self.identity] {
            std::fs::remove_file(file).expect("ours");
        }
    }
}

fn certificates() -> Certificates {
    let key = || rcgen::KeyPair::generate().expect("a key");
    let mut of_authority = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    of_authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = key();
    let authority = of_authority.self_signed(&authority_key).expect("signed");
    let signed = |name: &str, own: &rcgen::KeyPair| {
        let params = rcgen::CertificateParams::new(vec![name.to_string()]).expect("a name");
        params
            .signed_by(own, &authority, &authority_key)
            .expect("signed")
    };
    let (server_key, client_key) = (key(), key());
    let (server, client) = (
        signed("shop.test", &server_key),
        signed("client.test", &client_key),
    );
    let files = [support::temporary("pem"), support::temporary("pem")];
    let pem = |certificate: &[u8], label: &str| {
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, certificate);
        format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
    };
    std::fs::write(&files[0], pem(authority.der(), "CERTIFICATE")).expect("a file");
    let both = pem(client.der(), "CERTIFICATE") + &pem(&client_key.serialize_der(), "PRIVATE KEY");
    std::fs::write(&files[1], both).expect("a file");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.der().clone()).expect("a certificate");
    let [authority, identity] = files;
    Certificates {
        authority,
        identity,
        server: server.der().clone(),
        server_key,
        roots: Arc::new(roots),
    }
}

#[test]
fn servers_are_verified_against_authorities_where_that_is_asked() {
    let known = certificates();
    let address = serving_with(known.server.clone(), &known.server_key, echo);
    let line = |more: &str| {
        let ca = known.authority.display();
        format!("-t1 -c2 -n 10 -d60s -T30s --ca {ca} {more} https://{address}/")
    };
    let result = measured(&line("--sni shop.test"));
    assert!(count(&result, "/totals/completed") > 0);
    for wrong in ["--sni other.test", ""] {
        let result = unreached(&line(wrong));
        let notes = result["notes"].to_string();
        assert!(notes.contains("certificate not valid for name"), "{notes}");
    }
    let own = https();
    let ca = known.authority.display();
    let result = unreached(&format!(
        "-t1 -c1 -d200ms -T30s --ca {ca} https://localhost:{}/",
        own.port()
    ));
    // its own certificate names the same issuer, so it may be the signature that is wrong
    let notes = result["notes"].to_string();
    let is_refused = notes.contains("UnknownIssuer") || notes.contains("BadSignature");
    assert!(is_refused, "{notes}");
}

#[test]
fn a_server_whose_certificate_is_refused_learns_why() {
    let known = certificates();
    let log = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&log);
    let address = serving_with(
        known.server.clone(),
        &known.server_key,
        move |mut stream| {
            if let Err(error) = stream.read(&mut [0; 4096]) {
                own.lock().expect("no panic").push(error.to_string());
            }
        },
    );
    let ca = known.authority.display();
    unreached(&format!(
        "-t1 -c1 -n 1 -d60s -T30s --ca {ca} --sni other.test https://{address}/"
    ));
    // the test whether the server is there says nothing
    let is_told = || {
        let log = log.lock().expect("no panic");
        log.iter()
            .any(|why| why.contains("fatal alert: BadCertificate"))
    };
    wait_until(is_told);
    assert!(is_told(), "{:?}", log.lock());
}

#[test]
fn a_client_certificate_is_shown_to_servers_that_ask() {
    let known = certificates();
    let provider = Arc::new(ring::default_provider());
    let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
        Arc::clone(&known.roots),
        Arc::clone(&provider),
    );
    let key = PrivateKeyDer::try_from(known.server_key.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("roots"))
        .with_single_cert(vec![known.server.clone()], key)
        .expect("they fit");
    let address = listening(config, echo);
    let line = |more: String| format!("-t1 -c2 -n 10 -d60s -T30s {more} https://{address}/");
    let result = measured(&line(format!("--cert {}", known.identity.display())));
    assert!(count(&result, "/totals/completed") > 0);
    assert_eq!(count(&result, "/errors/total"), 0);
    // TLS 1.3 ends the handshake before the server has looked at the certificate
    let output = run(&line("--strict".to_string()));
    assert_eq!(output.status.code(), Some(1));
    // what a connection without a request on it met is no less known
    let url = format!("https://{address}/");
    let (result, _) = measured_or_not(&format!("-t1 -c1 -R10 -d1s -T30s {url}"));
    let notes = result["notes"].to_string();
    assert!(
        notes.contains("connect: received fatal alert: CertificateRequired"),
        "{notes}"
    );
}

#[test]
fn versions_groups_and_suites_are_offered_as_typed() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let address = serving(move |mut stream| {
        while stream.conn.is_handshaking() {
            if stream.conn.complete_io(&mut stream.sock).is_err() {
                return;
            }
        }
        let (version, suite) = (
            stream.conn.protocol_version(),
            stream.conn.negotiated_cipher_suite(),
        );
        let group = stream
            .conn
            .negotiated_key_exchange_group()
            .map(|group| group.name());
        let suite = suite.map(|suite| suite.suite());
        log.lock()
            .expect("no panic")
            .push(format!("{version:?} {suite:?} {group:?}"));
        echo(stream);
    });
    let line = |more: &str| format!("-t1 -c1 -n 10 -d60s -T30s {more} https://{address}/");
    measured(&line(
        "--tls-version 1.2 --tls-ciphers TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    ));
    measured(&line("--tls-version 1.3 --tls-groups secp384r1"));
    let seen = seen.lock().expect("no panic").join(", ");
    assert!(
        seen.contains("TLSv1_2) Some(TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384)"),
        "{seen}"
    );
    assert!(
        seen.contains("TLSv1_3)") && seen.contains("Some(secp384r1)"),
        "{seen}"
    );
    for (wrong, message) in [
        (
            "--tls-version 1.1",
            "--tls-version: unknown '1.1'; there are 1.2, 1.3",
        ),
        (
            "--tls-groups x",
            "--tls-groups: unknown 'x'; there are X25519",
        ),
        (
            "--tls-ciphers x",
            "--tls-ciphers: unknown 'x'; there are TLS13_",
        ),
        ("--key k", "--key: needs the certificate that it belongs to"),
        ("--ca /dev/null", "--ca: cannot read /dev/null"),
    ] {
        let output = run(&line(wrong));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(message), "{errors}");
    }
    let output = run("--tls-resume http://127.0.0.1:1/");
    assert!(!output.status.success());
}

#[test]
fn sessions_are_resumed_where_that_is_asked() {
    let closing = serving(|mut stream| {
        let mut buffer = [0; 4096];
        if stream.read(&mut buffer).is_ok_and(|n| n > 0) {
            let answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
            let _ = stream.write_all(answer).and_then(|()| stream.flush());
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
    });
    let line = |more: &str| {
        let port = closing.port();
        format!("-t1 -c1 -n 10 -d60s -T30s -H Connection:close {more} https://localhost:{port}/")
    };
    let whole = measured(&line(""));
    assert_eq!(count(&whole, "/totals/tls_resumed"), 0);
    assert!(count(&whole, "/latency/tls/count") > 2);
    let resumed = measured(&line("--tls-resume"));
    assert!(
        count(&resumed, "/totals/tls_resumed") > 0,
        "{}",
        resumed["totals"]
    );
}

#[test]
fn large_bodies_come_through_tls_whole() {
    let address = serving(|mut stream| {
        let mut buffer = [0; 4096];
        let body = vec![b'x'; 1 << 20];
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        while stream.read(&mut buffer).is_ok_and(|n| n > 0) {
            let head = stream.write_all(head.as_bytes());
            if head
                .and_then(|()| stream.write_all(&body))
                .and_then(|()| stream.flush())
                .is_err()
            {
                return;
            }
        }
    });
    let result = measured(&format!("-t1 -c3 -d1s -R30 -T30s https://{address}/"));
    assert_eq!(
        count(&result, "/totals/completed"),
        30,
        "{}",
        result["errors"]
    );
    assert!(count(&result, "/totals/bytes_in") >= 30 << 20);
}

#[test]
fn an_address_with_a_zone_is_a_name_without_it() {
    let Ok(listener) = TcpListener::bind("[::1]:0") else {
        support::report_skip("IPv6 is missing");
        return;
    };
    let made = rcgen::generate_simple_self_signed(vec!["::1".to_string()]).expect("a certificate");
    let key = PrivateKeyDer::try_from(made.key_pair.serialize_der()).expect("a key");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("they fit");
    let port = listening_at(listener, vec![config], echo).port();
    let result = measured(&format!(
        "-t1 -c1 -n 4 -d60s -T30s https://[::1%251]:{port}/"
    ));
    assert_eq!(count(&result, "/totals/completed"), 4);
}
