//! Odd and hostile servers, byte by byte: what is a response counts as one, everything else as what the pages
//! say, and all counts agree.

mod support;

use serde_json::Value;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use support::{abort, count, measured, Conversation, Server, HELLO};

/// Bytes, status, and whether the connection stays.
type Form = (&'static [u8], u16, bool);

const FORMS: [Form; 23] = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, true),
    (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, true),
    (b"HTTP/1.1  200  OK\r\nContent-Length: 1\r\n\r\nx", 200, true),
    (b"HTTP/1.1 299 \r\nContent-Length: 1\r\n\r\nx", 299, true),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5, 5\r\n\r\nhello", 200, true),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b;c=\"d;e\"\r\nhello\r\n0;last\r\n\r\n", 200, true),
    (b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n00A\r\n0123456789\r\n000\r\nA: b\r\nC: d\r\n\r\n", 200, true),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: x\r\nContent-Length: 9\r\n\r\n\
       HTTP/1.1 102 Busy\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, true),
    (b"HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\n", 204, true),
    (b"HTTP/1.1 304 Same\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n", 304, true),
    (b"HTTP/1.1 404 No\r\nKeep-Alive: timeout=1, max=2\r\nConnection: Keep-Alive\r\nContent-Length: 0\r\n\r\n", 404, true),
    (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 200, true),
    (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 6\r\n\r\n\x1f\x8b\x08\0\r\n", 200, true),
    (b"HTTP/1.1 200 OK\r\nX-Folded: a\r\n b\r\n\tc\r\nContent-Length: 1\r\n\r\nx", 200, true),
    (b"HTTP/1.1 200 OK\nContent-Length: 1\n\nx", 200, true),
    (b"HTTP/1.1 503 Full\r\nX-Empty:\r\nX-Blank: \t \r\nContent-Length: \t3 \r\n\r\nnow", 503, true),
    (b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", 999, true),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, false),
    (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, false),
    (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nuntil the end", 200, false),
    (b"HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 2\r\n\r\nok", 200, false),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nuntil the end", 200, false),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 99\r\n\r\n1\r\nx\r\n0\r\n\r\n", 200, false),
];

/// Sends bytes in pieces of this size.
fn send_in_pieces(conversation: &mut Conversation, bytes: &[u8], size: usize) -> bool {
    bytes.chunks(size).all(|piece| conversation.send(piece))
}

/// What is true of each closed loop with a number of requests: each was answered or lost, the statuses are
/// those of the responses, and each error cost one request.
fn check_sums(result: &Value, requests: u64) {
    let completed = count(result, "/totals/completed");
    let lost = count(result, "/totals/lost");
    assert_eq!(
        count(result, "/totals/sent"),
        requests,
        "{}",
        result["totals"]
    );
    assert_eq!(completed + lost, requests, "{}", result["totals"]);
    let statuses = result["totals"]["status"].as_object().expect("by status");
    let answered: u64 = statuses.values().filter_map(Value::as_u64).sum();
    assert_eq!(answered, completed, "{statuses:?}");
    assert_eq!(count(result, "/errors/total"), lost, "{}", result["errors"]);
    assert_eq!(count(result, "/latency/service/count"), requests);
    let bounds = result.pointer("/latency/censored/count");
    assert_eq!(bounds.and_then(Value::as_u64).unwrap_or(0), lost);
}

#[test]
fn every_form_of_response_is_one_in_whatever_pieces_it_comes() {
    for (bytes, status, stays) in FORMS {
        for size in [1, 7, bytes.len()] {
            let server = Server::start(move |mut conversation| {
                while conversation.request().is_some()
                    && send_in_pieces(&mut conversation, bytes, size)
                    && stays
                {}
            });
            let shown = format!("{size}: {}", String::from_utf8_lossy(bytes));
            let result = measured(&format!("-t1 -c1 -n 4 -d60s -T30s {}", server.url()));
            check_sums(&result, 4);
            let counted = result["totals"]["status"][status.to_string()].as_u64();
            assert_eq!(counted, Some(4), "{shown}: {}", result["errors"]);
            let connects = count(&result, "/totals/connects");
            assert_eq!(connects == 1, stays, "{shown}: {connects}");
        }
    }
}

/// How a server ends a connection.
#[derive(Clone, Copy, Debug)]
enum End {
    Reset,
    Close,
}

/// Each connection answers its first request; the second gets one byte more than that of the connection
/// before, and then the end. Connection 0 is the test whether the server is there.
fn cut_after_each_byte(bytes: &'static [u8], end: End) -> Value {
    let cuts = Arc::new(AtomicUsize::new(0));
    let server = Server::start(move |mut conversation| {
        if conversation.request().is_none() || !conversation.send(HELLO) {
            return;
        }
        if conversation.request().is_none() {
            return;
        }
        let cut = cuts.fetch_add(1, Ordering::SeqCst);
        conversation.send(&bytes[..cut.min(bytes.len() - 1)]);
        if let End::Reset = end {
            abort(conversation.stream());
        }
    });
    let requests = 2 * bytes.len() as u64;
    let line = format!("-t1 -c1 -n {requests} -d60s -T30s {}", server.url());
    let result = measured(&line);
    check_sums(&result, requests);
    assert_eq!(count(&result, "/totals/lost"), bytes.len() as u64);
    result
}

#[test]
fn a_response_that_ends_after_each_of_its_bytes_is_lost() {
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n0\r\nA: b\r\n\r\n";
    for bytes in [HELLO, CHUNKED] {
        for end in [End::Reset, End::Close] {
            let errors = &cut_after_each_byte(bytes, end)["errors"];
            let of = |path: &str| errors.pointer(path).and_then(Value::as_u64).unwrap_or(0);
            // the end of a connection between responses may cross the request
            let broken = of("/read") + of("/stale");
            let lost = bytes.len() as u64;
            let expected = match end {
                End::Reset => (lost, 0),
                End::Close => (1, lost - 1),
            };
            let found = (broken, of("/malformed/early_eof"));
            assert_eq!(found, expected, "{end:?}: {errors}");
        }
    }
}

#[test]
fn responses_that_never_end_are_cut_or_time_out() {
    // a beginning, what follows for ever, and the place in which it is counted
    let servers: [(&[u8], &[u8], &str); 7] = [
        (
            b"HTTP/1.1 200 OK\r\n",
            b"X-More: and more\r\n",
            "/malformed/too_long",
        ),
        (
            b"HTTP/1.1 200 OK\r\nX-Long: ",
            b"xxxxxxxxxxxxxxxx",
            "/malformed/too_long",
        ),
        (
            b"HTTP/1.1 200 O",
            b"KKKKKKKKKKKKKKKK",
            "/malformed/too_long",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;",
            b"name=value;",
            "/malformed/chunk",
        ),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n", "/timeout"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"1;a=b\r\nx\r\n",
            "/timeout",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            b"X-Trailer: y\r\n",
            "/malformed/too_long",
        ),
    ];
    for (beginning, more, path) in servers {
        let server = Server::start(move |mut conversation| {
            let more = more.repeat(100);
            if conversation.request().is_some() && conversation.send(beginning) {
                while conversation.send(&more) {}
            }
        });
        let timeout = if path == "/timeout" { "500ms" } else { "30s" };
        let line = format!("-t1 -c1 -n 2 -d60s -T{timeout} {}", server.url());
        let result = measured(&line);
        check_sums(&result, 2);
        let counted = result["errors"].pointer(path).and_then(Value::as_u64);
        let shown = String::from_utf8_lossy(more).into_owned();
        assert_eq!(counted, Some(2), "{shown}: {}", result["errors"]);
    }
}

#[test]
fn heads_as_long_as_curl_takes_are_taken_and_longer_ones_are_named() {
    for (kib, completed) in [(299, 2), (301, 0)] {
        let server = Server::start(move |mut conversation| {
            let long = "y".repeat(kib * 1024);
            let head = format!("HTTP/1.1 200 OK\r\nX: {long}\r\nContent-Length: 0\r\n\r\n");
            while conversation.request().is_some() && conversation.send(head.as_bytes()) {}
        });
        let result = measured(&format!("-t1 -c1 -n 2 -d60s -T30s {}", server.url()));
        check_sums(&result, 2);
        assert_eq!(count(&result, "/totals/completed"), completed, "{kib}");
        let notes = result["notes"].to_string();
        let is_named = notes.contains("too_long (over 300 KiB): ");
        assert_eq!(is_named, completed == 0, "{notes}");
    }
}

#[test]
fn bytes_behind_a_response_without_a_body_belong_to_nothing() {
    let surplus: [&[u8]; 3] = [
        b"HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello",
    ];
    for bytes in surplus {
        let server =
            Server::start(
                move |mut conversation| {
                    while conversation.request().is_some() && conversation.send(bytes) {}
                },
            );
        let result = measured(&format!("-t1 -c1 -n 4 -d60s -T30s {}", server.url()));
        let shown = String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(
            count(&result, "/totals/completed"),
            4,
            "{shown}: {}",
            result["errors"]
        );
        assert_eq!(count(&result, "/totals/lost"), 0, "{shown}");
        let unasked = count(&result, "/errors/malformed/unasked");
        assert!((3..=4).contains(&unasked), "{shown}: {}", result["errors"]);
        assert_eq!(count(&result, "/errors/total"), unasked, "{shown}");
    }
}
