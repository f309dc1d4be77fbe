//! https: handshakes, exchanges, and servers that are none.

#[path = "support/https.rs"]
mod https;
mod support;

use https::{echo, https, serving, Stream};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{always, count, measured, unreached, wait_until, Server, HELLO};

#[test]
fn https_is_measured_with_its_handshakes_apart() {
    let result = measured(&format!(
        "-t1 -c3 -d500ms -R 60 -T 30s https://localhost:{}/",
        https().port()
    ));
    assert!(count(&result, "/totals/completed") > 10);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(count(&result, "/latency/tls/count"), 3);
}

/// Takes handshakes one after the other, each after `pause` but the first. Before that comes the
/// test whether the server is there.
fn slow_handshakes(pause: Duration) -> SocketAddr {
    let taken = Arc::new(Mutex::new(0));
    serving(move |mut stream| {
        {
            let mut taken = taken.lock().expect("no panic");
            *taken += 1;
            if *taken > 2 {
                std::thread::sleep(pause);
            }
            while stream.conn.is_handshaking() {
                if stream.conn.complete_io(&mut stream.sock).is_err() {
                    return;
                }
            }
        }
        echo(stream);
    })
}

#[test]
fn the_load_begins_when_slow_handshakes_are_over() {
    // 30 of them take 900 ms, none of them more than 600 ms once it has begun
    let address = slow_handshakes(Duration::from_millis(30));
    let result = measured(&format!(
        "-t1 -c30 -d300ms -T30s --connect-timeout 20s https://localhost:{}/",
        address.port()
    ));
    assert_eq!(count(&result, "/latency/tls/count"), 30);
    let warnings = result["warnings"].to_string();
    assert!(!warnings.contains("\"setup\""), "{warnings}");
}

#[test]
fn a_load_that_begins_before_all_are_connected_is_warned_of() {
    // two wait for each other for longer than a connection may take; the first is there at once
    let address = slow_handshakes(Duration::from_secs(3));
    let result = measured(&format!(
        "-t1 -c4 -d300ms -T30s --connect-timeout 2s https://localhost:{}/",
        address.port()
    ));
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("the load began with"), "{warnings}");
}

#[test]
fn https_at_a_fixed_rate_and_with_a_body() {
    let file = support::temporary("body");
    std::fs::write(&file, vec![b'x'; 3000]).expect("a file");
    let url = format!("https://{}/", https());
    let result = measured(&format!(
        "-t1 -c2 -d500ms -R 100 -T 30s --body-file {} {url}",
        file.display()
    ));
    std::fs::remove_file(&file).expect("ours");
    assert_eq!(
        count(&result, "/totals/completed"),
        50,
        "{}",
        result["errors"]
    );
}

/// Reads nothing until the client has filled all buffers on the way, then a request with its body,
/// and answers it.
fn read_late(mut stream: Stream, length: usize) {
    let mut buffer = [0; 16 * 1024];
    loop {
        while stream.conn.is_handshaking() {
            if stream.conn.complete_io(&mut stream.sock).is_err() {
                return;
            }
        }
        std::thread::sleep(Duration::from_millis(50));
        let mut seen = Vec::new();
        let end = loop {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(n) => seen.extend_from_slice(&buffer[..n]),
            }
            let head = seen.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(end) = head {
                break end + 4;
            }
        };
        let mut left = (end + length).saturating_sub(seen.len());
        while left > 0 {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(n) => left = left.saturating_sub(n),
            }
        }
        if stream
            .write_all(HELLO)
            .and_then(|()| stream.flush())
            .is_err()
        {
            return;
        }
    }
}

#[test]
fn uploads_to_a_slow_reader_are_sent_to_their_end() {
    // less than a session takes at once, and much more
    for length in [250_000, 3_000_000] {
        let address = serving(move |stream| read_late(stream, length));
        let file = support::temporary("body");
        std::fs::write(&file, vec![b'x'; length]).expect("a file");
        let result = measured(&format!(
            "-t1 -c2 -n 6 -d 60s -T 20s --send-buffer 4096 --body-file {} https://{address}/",
            file.display()
        ));
        std::fs::remove_file(&file).expect("ours");
        assert_eq!(
            (
                count(&result, "/totals/completed"),
                count(&result, "/errors/total")
            ),
            (6, 0),
            "{length}: {}",
            result["errors"]
        );
    }
}

#[test]
fn wss_is_websocket_behind_a_handshake() {
    let address = serving(|stream| {
        let Ok(mut socket) = tungstenite::accept(stream) else {
            return;
        };
        while let Ok(message) = socket.read() {
            if message.is_binary() && socket.send(message).is_err() {
                return;
            }
        }
    });
    let file = support::temporary("body");
    std::fs::write(&file, vec![b'x'; 100_000]).expect("a file");
    let result = measured(&format!(
        "-t1 -c2 -d500ms -R 60 -T 30s --body-file {} wss://{address}/",
        file.display()
    ));
    std::fs::remove_file(&file).expect("ours");
    assert_eq!(
        count(&result, "/totals/completed"),
        30,
        "{}",
        result["errors"]
    );
    assert_eq!(count(&result, "/latency/tls/count"), 2);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
}

/// Answers one request and ends the connection, with the end that TLS has or without it.
fn answer_once(mut stream: Stream, answer: &[u8], says_goodbye: bool) {
    let mut buffer = [0; 4096];
    if stream.read(&mut buffer).is_ok_and(|n| n > 0) {
        if stream.write_all(answer).is_ok() && says_goodbye {
            stream.conn.send_close_notify();
        }
        // the client may have given up
        let _ = stream.flush();
    }
}

#[test]
fn a_body_that_lasts_until_the_end_is_whole_only_with_the_end_of_tls() {
    const OPEN: &[u8] = b"HTTP/1.1 200 OK\r\n\r\nhello";
    const KNOWN: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
    let ends: [(fn(Stream), bool); 3] = [
        (|stream| answer_once(stream, OPEN, true), true),
        (|stream| answer_once(stream, OPEN, false), false),
        (|stream| answer_once(stream, KNOWN, false), true),
    ];
    for (serve, is_whole) in ends {
        let url = format!("https://{}/", serving(serve));
        let result = measured(&format!("-t1 -c2 -n 20 -d60s -T 30s {url}"));
        // errors that did not occur are left out
        let cut = result["errors"]["malformed"]["early_eof"].as_u64();
        let cut = cut.unwrap_or(0);
        let (whole, errors) = (
            count(&result, "/totals/completed"),
            count(&result, "/errors/total"),
        );
        assert_eq!((whole > 0, cut > 0), (is_whole, !is_whole), "{result}");
        assert_eq!(errors, cut, "{}", result["errors"]);
    }
}

#[test]
fn a_plain_server_behind_https_is_a_connect_error() {
    let server = Server::start(always(HELLO));
    let result = unreached(&format!(
        "-t1 -c1 -d300ms -T 1s https://{}/",
        server.address
    ));
    assert!(
        count(&result, "/errors/connect/other") + count(&result, "/errors/connect/timeout") > 0
    );
    assert_eq!(count(&result, "/totals/completed"), 0);
}

#[test]
fn a_server_that_does_not_choose_http2_is_reported_and_gets_none() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&log);
    let address = serving(move |mut stream| {
        let mut bytes = Vec::new();
        // how it ends is not the question
        let _ = stream.read_to_end(&mut bytes);
        if !stream.conn.is_handshaking() {
            own.lock().expect("no panic").push(bytes);
        }
    });
    let result = unreached(&format!("--http2 -t1 -c1 -d300ms https://{address}/"));
    assert!(count(&result, "/errors/connect/other") > 0);
    let notes = result["notes"].to_string();
    assert!(notes.contains("did not choose HTTP/2"), "{notes}");
    wait_until(|| !log.lock().expect("no panic").is_empty());
    let sent = log.lock().expect("no panic").clone();
    assert!(sent.iter().all(Vec::is_empty), "{sent:?}");
}

/// Gives this answer to everything; how each connection ended that had begun: with the end that TLS has,
/// or with an error.
fn noting_ends(answer: &'static [u8]) -> (SocketAddr, Arc<Mutex<Vec<Option<ErrorKind>>>>) {
    let log = Arc::new(Mutex::new(Vec::new()));
    let own = Arc::clone(&log);
    let address = serving(move |mut stream| {
        let mut buffer = [0; 4096];
        let end = loop {
            match stream.read(&mut buffer) {
                Ok(0) => break None,
                Ok(_) => drop(stream.write_all(answer).and_then(|()| stream.flush())),
                Err(error) => break Some(error.kind()),
            }
        };
        if !stream.conn.is_handshaking() {
            own.lock().expect("no panic").push(end);
        }
    });
    (address, log)
}

#[test]
fn connections_end_with_the_end_of_tls() {
    const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    for (options, answer, connections) in [
        ("-c3 -n 6", HELLO, 3),
        ("-c2 -R20 -d500ms --tls-version 1.2", HELLO, 2),
        ("-c2 -n 6 --requests-per-connection 1", HELLO, 6),
        ("-c2 -n 6 -H Connection:close", LAST, 6),
        // a ramp down closes two of four
        ("-c4..2:2 -d1s -R20", HELLO, 4),
        // a server that does not answer
        ("-c2 -n 4 -T300ms --connect-timeout 30s", b"", 4),
    ] {
        let (address, log) = noting_ends(answer);
        measured(&format!("-t1 -T30s {options} https://{address}/"));
        wait_until(|| log.lock().expect("no panic").len() >= connections);
        let ends = log.lock().expect("no panic").clone();
        assert!(ends.len() >= connections, "{options}: {ends:?}");
        assert!(ends.iter().all(Option::is_none), "{options}: {ends:?}");
    }
}

#[test]
fn an_aborted_connection_ends_without_the_end_of_tls() {
    let (address, log) = noting_ends(HELLO);
    measured(&format!("-t1 -c2 -n 4 -T30s --abort https://{address}/"));
    wait_until(|| log.lock().expect("no panic").len() >= 2);
    let ends = log.lock().expect("no panic").clone();
    assert_eq!(ends, [Some(ErrorKind::ConnectionReset); 2]);
}

#[test]
fn a_whole_response_counts_whatever_comes_behind_it() {
    // not a record of TLS
    let address = serving(|mut stream| {
        let mut buffer = [0; 4096];
        if stream.read(&mut buffer).is_ok_and(|n| n > 0) {
            let mut bytes = Vec::new();
            stream.conn.writer().write_all(HELLO).expect("room");
            stream.conn.write_tls(&mut bytes).expect("memory");
            bytes.extend_from_slice(b"Segmentation fault");
            // the client may have given up
            let _ = stream.sock.write_all(&bytes);
            let _ = stream.sock.read(&mut buffer);
        }
    });
    let result = measured(&format!("-t1 -c2 -n 10 -d60s -T30s https://{address}/"));
    assert_eq!(
        count(&result, "/totals/completed"),
        10,
        "{}",
        result["notes"]
    );
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
}

#[test]
fn a_handshake_without_a_common_cipher_suite_says_what_is_not_offered() {
    let server = Server::start(|mut conversation| {
        // a fatal alert, handshake_failure (RFC 5246, 7.2)
        if conversation.read_exact(&mut [0; 5]) {
            conversation.send(b"\x15\x03\x03\x00\x02\x02\x28");
        }
        while conversation.read_exact(&mut [0]) {}
    });
    let result = unreached(&format!("-t1 -c1 -n 2 -d60s https://{}/", server.address));
    let notes = result["notes"].to_string();
    let why = "HandshakeFailure (CBC, key exchange by RSA or DHE, and P-521 are not offered)";
    assert!(notes.contains(why), "{notes}");
}
