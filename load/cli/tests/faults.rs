//! Servers that misbehave: every fault is counted as what it is, and the run goes on.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;
use support::{always, count, measured, Conversation, Server, HELLO};

/// A server that does `fault` on the first request of every third connection and is counted.
fn sometimes(
    fault: impl Fn(&mut Conversation) + Send + Sync + 'static,
) -> (Server, Arc<AtomicUsize>) {
    let faults = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&faults);
    let server = Server::start(move |mut conversation| {
        while conversation.request().is_some() {
            if conversation.number() % 3 == 1 {
                counted.fetch_add(1, Ordering::SeqCst);
                fault(&mut conversation);
                return;
            }
            if !conversation.send(HELLO) {
                return;
            }
        }
    });
    (server, faults)
}

/// Runs against it; the figure at `path` must be the number of faults, and answers must come.
fn expect(path: &str, fault: impl Fn(&mut Conversation) + Send + Sync + 'static) {
    let (server, faults) = sometimes(fault);
    let result = measured(&format!("-t1 -c3 -d500ms -R 200 -T 30s {}", server.url()));
    let happened = faults.load(Ordering::SeqCst) as u64;
    assert!(happened > 0);
    assert_eq!(count(&result, path), happened, "{}", result["errors"]);
    assert_eq!(
        count(&result, "/errors/total"),
        happened,
        "{}",
        result["errors"]
    );
    assert!(count(&result, "/totals/completed") > 0);
}

#[test]
fn a_close_instead_of_an_answer_is_a_read_error() {
    expect("/errors/read", |_| {});
}

#[test]
fn an_answer_that_breaks_off_is_an_early_end() {
    expect("/errors/malformed/early_eof", |conversation| {
        conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel");
    });
}

#[test]
fn a_head_that_breaks_off_is_an_early_end() {
    expect("/errors/malformed/early_eof", |conversation| {
        conversation.send(b"HTTP/1.1 200 OK\r\nConte");
    });
}

#[test]
fn nonsense_is_a_malformed_status_line() {
    expect("/errors/malformed/status_line", |conversation| {
        conversation.send(b"220 mail ready\r\n");
    });
}

#[test]
fn a_wrong_length_and_a_wrong_chunk_are_told_apart() {
    expect("/errors/malformed/length", |conversation| {
        conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n");
    });
    expect("/errors/malformed/chunk", |conversation| {
        conversation.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n");
    });
}

#[test]
fn a_second_answer_to_one_request_is_unasked() {
    let server = Server::start(|mut conversation| {
        let mut answers = 0;
        while conversation.request().is_some() {
            answers += 1;
            let twice = [HELLO, HELLO].concat();
            let bytes = if answers == 3 { &twice[..] } else { HELLO };
            if !conversation.send(bytes) {
                return;
            }
        }
    });
    let result = measured(&format!("-t1 -c1 -d300ms -R 100 -T 30s {}", server.url()));
    assert!(
        count(&result, "/errors/malformed/unasked") > 0,
        "{}",
        result["errors"]
    );
}

#[test]
fn a_shorter_body_is_noticed() {
    let server = Server::start(|mut conversation| {
        let mut answers = 0;
        while conversation.request().is_some() {
            answers += 1;
            let short = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhell";
            if !conversation.send(if answers == 5 { short } else { HELLO }) {
                return;
            }
        }
    });
    let result = measured(&format!("-t1 -c1 -d300ms -R 100 -T 30s {}", server.url()));
    assert_eq!(count(&result, "/errors/short_body"), 1);
}

#[test]
fn requests_without_an_answer_time_out_and_stay_in_the_figures() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            if conversation.number() == 1 {
                std::thread::sleep(Duration::from_secs(600));
            }
            conversation.send(HELLO);
        }
    });
    // far longer than a machine with other work keeps the other connection waiting
    let result = measured(&format!("-t1 -c2 -d4s -T 2s {}", server.url()));
    assert_eq!(count(&result, "/errors/timeout"), 1);
    assert_eq!(count(&result, "/latency/censored/count"), 1);
    assert!(count(&result, "/latency/service/max") >= 2_000_000_000);
    assert_eq!(
        count(&result, "/totals/connects"),
        3,
        "the connection was opened again"
    );
}

#[test]
fn a_server_that_goes_away_is_refused_connections_and_never_a_hot_loop() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    // one connection is the test whether the server is there; then nobody listens any more
    let server = std::thread::spawn(move || drop(listener.accept()));
    let result = measured(&format!("-t1 -c2 -d2s http://{address}/"));
    server.join().expect("no panic");
    let refused = count(&result, "/errors/connect/refused");
    // 2 connections, waits of 1, 2, 4 … 100 ms: about 26 tries each, fewer on a machine with other work
    assert!((4..200).contains(&refused), "{refused}");
    assert_eq!(count(&result, "/totals/completed"), 0);
}

#[test]
fn every_form_of_a_correct_answer_is_understood() {
    let forms: [(&[u8], bool); 6] = [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", true),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\nX: y\r\n\r\n", true),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", true),
        (b"HTTP/1.1 204 None\r\n\r\n", true),
        (b"HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n", true),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", false),
    ];
    for (form, stays) in forms {
        let server = Server::start(move |mut conversation: Conversation| {
            while conversation.request().is_some() && conversation.send(form) && stays {}
        });
        let result = measured(&format!("-t1 -c2 -d500ms -R 100 -T 30s {}", server.url()));
        let completed = count(&result, "/totals/completed");
        let shown = String::from_utf8_lossy(form).into_owned();
        assert!(completed > 0, "{shown}");
        assert_eq!(
            count(&result, "/errors/total"),
            0,
            "{shown}: {}",
            result["errors"]
        );
        if stays {
            assert_eq!(count(&result, "/totals/connects"), 2, "{shown}");
        } else {
            assert!(count(&result, "/totals/connects") >= completed, "{shown}");
        }
    }
}

#[test]
fn answers_to_head_have_no_body() {
    let server = Server::start(always(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"));
    let result = measured(&format!(
        "-t1 -c2 -d500ms -R 100 -T 30s -X HEAD {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/completed"), 50);
    assert_eq!(count(&result, "/errors/total"), 0);
}

#[test]
fn idle_connections_may_be_closed_at_any_time() {
    let server = Server::start(|mut conversation| {
        // one answer, then the end without a word of it
        if conversation.request().is_some() {
            conversation.send(HELLO);
        }
    });
    let result = measured(&format!("-t1 -c2 -d500ms -R 40 -T 30s {}", server.url()));
    assert_eq!(
        count(&result, "/totals/completed"),
        20,
        "{}",
        result["errors"]
    );
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
}

#[test]
fn connections_asked_to_close_are_opened_for_every_request() {
    let server = Server::start(|mut conversation| {
        if conversation.request().is_some() {
            conversation
                .send(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx");
        }
    });
    let result = measured(&format!(
        "-t1 -c2 -d500ms -R 100 -T 30s -H Connection:close {}",
        server.url()
    ));
    assert_eq!(result["plan"]["close"], true);
    assert_eq!(count(&result, "/errors/total"), 0);
    assert!(count(&result, "/totals/connects") >= count(&result, "/totals/completed"));
}
