//! HTTP/3: the same loops, figures and scripts as over HTTP/1.1, on streams of QUIC.

#[path = "support/http3.rs"]
mod http3;
mod support;

use http3::{
    lossy_way, pause, request, respond, respond_always, say, Http3Server, Reply, CONTROL, HELLO,
};
use quinn::{Connection, ConnectionError, TransportConfig, VarInt};
use std::collections::HashSet;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use support::{count, measured, own_address, run, temporary, unreached, wait_until};

#[test]
fn a_closed_loop_over_streams_counts_what_the_server_counts() {
    let server = Http3Server::hello();
    let result = measured(&format!(
        "--http3 --streams 5 -t2 -c4 -n 300 -d60s -T30s {}",
        server.url()
    ));
    let seen = server.seen();
    assert_eq!(seen.len(), 300);
    assert_eq!(count(&result, "/totals/sent"), 300);
    assert_eq!(count(&result, "/totals/completed"), 300);
    assert_eq!(count(&result, "/totals/status/200"), 300);
    assert_eq!(count(&result, "/latency/service/count"), 300);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/connects"), 4);
    assert_eq!(server.connections(), 4);
    // the handshake of QUIC has that of TLS in it
    assert_eq!(count(&result, "/latency/connect/count"), 4);
    assert_eq!(count(&result, "/latency/tls/count"), 4);
    assert_eq!(result["plan"]["http3"], true);
    assert_eq!(result["plan"]["http2"], false);
    assert_eq!(result["plan"]["streams"], 5);
    for one in seen {
        assert_eq!((one.method.as_str(), &one.uri), ("GET", &server.url()));
        assert_eq!(one.fields, [""; 0]);
    }
}

#[test]
fn an_open_loop_sends_what_is_due() {
    let server = Http3Server::hello();
    let result = measured(&format!(
        "--http3 --streams 4 -t1 -c2 -d1s -R100 -T30s --drain 30s -H x-own:1 {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/sent"), 100);
    assert_eq!(count(&result, "/totals/completed"), 100);
    assert_eq!(count(&result, "/latency/response/count"), 100);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    let seen = server.seen();
    assert_eq!(seen.len(), 100);
    assert!(seen.iter().all(|one| one.fields == ["x-own=1"]));
}

#[test]
fn bodies_of_any_length_are_counted_to_the_byte() {
    let server = Http3Server::start(|asked| {
        let (_, bytes) = asked.uri.rsplit_once('/').expect("a path");
        Reply::Body(bytes.parse().expect("a number"))
    });
    for (bytes, requests) in [(0, 20), (1024, 20), (1 << 20, 6)] {
        let result = measured(&format!(
            "--http3 --streams 2 -t1 -c1 -n {requests} -d60s -T30s --expect status=200,length={bytes} \
             {}{bytes}",
            server.url()
        ));
        let errors = &result["errors"];
        assert_eq!(count(&result, "/totals/completed"), requests, "{errors}");
        assert_eq!(count(&result, "/errors/total"), 0, "{errors}");
        // heads and frames, and nothing that QUIC adds
        let come = count(&result, "/totals/bytes_in");
        let all = requests * bytes;
        assert!(
            (all + 1..all + 2000 + requests * 100).contains(&come),
            "{come}"
        );
    }
}

#[test]
fn bodies_of_requests_pass_through_small_windows() {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(2000u32.into());
    transport.receive_window(5000u32.into());
    let come = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&come);
    let server = Http3Server::by_hand_with(transport, move |connection, _| {
        let come = Arc::clone(&own);
        async move {
            let _control = say(&connection, CONTROL).await;
            while let Ok((send, mut receive)) = connection.accept_bi().await {
                let all = receive.read_to_end(1 << 20).await.expect("a request");
                come.fetch_add(all.len() as u64, Ordering::SeqCst);
                respond(send, HELLO).await;
            }
        }
    });
    let file = temporary("body");
    std::fs::write(&file, vec![b'z'; 100_000]).expect("a file");
    let result = measured(&format!(
        "--http3 --streams 3 -t1 -c1 -n 10 -d60s -T30s --body-file {} {}",
        file.display(),
        server.url()
    ));
    std::fs::remove_file(&file).expect("ours");
    assert_eq!(count(&result, "/totals/completed"), 10);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    let come = come.load(Ordering::SeqCst);
    assert_eq!(come, count(&result, "/totals/bytes_out"), "at both ends");
    assert!((1_000_000..1_002_000).contains(&come), "{come}");
}

#[test]
fn uploads_that_the_server_stops_give_their_streams_back() {
    let mut transport = TransportConfig::default();
    transport.stream_receive_window(2000u32.into());
    let server = Http3Server::by_hand_with(transport, |connection, _| async move {
        let _control = say(&connection, CONTROL).await;
        while let Ok((send, mut receive)) = connection.accept_bi().await {
            receive.read(&mut [0; 100]).await.expect("a request");
            // H3_NO_ERROR; the client receives it ahead of the response
            receive.stop(0x100u32.into()).expect("open");
            pause().await;
            // `:status` (static 24 by name): 413
            respond(send, b"\x01\x08\0\0\x5f\x09\x03413").await;
        }
    });
    let file = temporary("body");
    std::fs::write(&file, vec![b'z'; 100_000]).expect("a file");
    let result = measured(&format!(
        "--http3 --streams 2 -t1 -c1 -n 250 -d60s -T5s --body-file {} {}",
        file.display(),
        server.url()
    ));
    std::fs::remove_file(&file).expect("ours");
    let errors = &result["errors"];
    assert_eq!(count(&result, "/totals/status/413"), 250, "{errors}");
    assert_eq!(count(&result, "/errors/timeout"), 0, "{errors}");
    assert_eq!(count(&result, "/totals/connects"), 1);
}

/// How many requests of a connection are under way at once, at most, at a server that answers three
/// together.
fn most_at_once(allowed: u32, streams: usize) -> usize {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(allowed.into());
    let most = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&most);
    let server = Http3Server::by_hand_with(transport, move |connection, _| {
        let most = Arc::clone(&own);
        async move {
            let _control = say(&connection, CONTROL).await;
            let mut waiting = Vec::new();
            while let Some((_, stream)) = request(&connection).await {
                waiting.push(stream);
                most.fetch_max(waiting.len(), Ordering::SeqCst);
                if waiting.len() == 3 {
                    for stream in waiting.drain(..) {
                        respond(stream, HELLO).await;
                    }
                }
            }
        }
    });
    let line = format!(
        "--http3 --streams {streams} -t1 -c1 -n 150 -d60s -T30s {}",
        server.url()
    );
    let result = measured(&line);
    assert_eq!(count(&result, "/totals/completed"), 150);
    assert_eq!(count(&result, "/totals/connects"), 1);
    most.load(Ordering::SeqCst)
}

#[test]
fn as_many_streams_as_asked_for_and_as_the_server_allows() {
    assert_eq!(most_at_once(100, 3), 3);
    assert_eq!(most_at_once(3, 50), 3);
}

#[test]
fn streams_that_are_reset_are_lost_and_reported() {
    let number = AtomicUsize::new(0);
    let server = Http3Server::start(move |_| match number.fetch_add(1, Ordering::SeqCst) % 4 {
        0 => Reply::Reset,
        _ => Reply::Hello,
    });
    let result = measured(&format!(
        "--http3 --streams 2 -t1 -c1 -d1s -R100 -T30s --drain 30s {}",
        server.url()
    ));
    let errors = &result["errors"];
    assert_eq!(count(&result, "/errors/stream_reset"), 25, "{errors}");
    assert_eq!(count(&result, "/errors/total"), 25, "{errors}");
    assert_eq!(count(&result, "/totals/lost"), 25);
    assert_eq!(count(&result, "/totals/completed"), 75);
    assert_eq!(count(&result, "/latency/response/count"), 100);
    // H3_INTERNAL_ERROR
    let notes = result["notes"].to_string();
    assert!(notes.contains("stream reset: code 258"), "{notes}");
    assert!(result["warnings"].to_string().contains("stream-resets"));
}

/// A server that treats its first connection by hand and answers on all others.
fn first_connection<R: std::future::Future<Output = ()> + Send + 'static>(
    first: impl Fn(Connection) -> R + Send + Sync + 'static,
) -> Http3Server {
    let first = Arc::new(first);
    Http3Server::by_hand(move |connection, number| {
        let first = Arc::clone(&first);
        async move {
            if number == 0 {
                first(connection).await;
                return;
            }
            let _control = say(&connection, CONTROL).await;
            respond_always(&connection).await;
        }
    })
}

#[test]
fn a_server_that_goes_away_is_left_in_good_order() {
    let server = first_connection(|connection| async move {
        let mut control = say(&connection, CONTROL).await;
        let mut waiting = Vec::new();
        while waiting.len() < 4 {
            waiting.push(request(&connection).await.expect("four at once").1);
        }
        // the third and the fourth, whose streams are 8 and 12, were not looked at
        control.write_all(b"\x07\x01\x08").await.expect("open");
        for stream in waiting.drain(..2) {
            pause().await;
            respond(stream, HELLO).await;
        }
        connection.closed().await;
    });
    // four on the connection that is left, and the rest on the next
    let result = measured(&format!(
        "--http3 --streams 4 -t1 -c1 -n 10 -d60s -T30s {}",
        server.url()
    ));
    let errors = &result["errors"];
    assert_eq!(count(&result, "/errors/stale"), 2, "{errors}");
    assert_eq!(count(&result, "/errors/total"), 2, "{errors}");
    assert_eq!(count(&result, "/totals/completed"), 8);
    assert_eq!(count(&result, "/totals/lost"), 2);
    assert_eq!(count(&result, "/totals/connects"), 2);
}

/// What a run of two requests meets whose first connection the server closes, with this code, while the
/// first request waits.
fn closed_with(code: u32) -> serde_json::Value {
    let server = first_connection(move |connection| async move {
        let _control = say(&connection, CONTROL).await;
        request(&connection).await.expect("the first");
        connection.close(code.into(), b"enough");
    });
    let result = measured(&format!(
        "--http3 -t1 -c1 -n 2 -d60s -T30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/errors/read"), 1, "{}", result["errors"]);
    assert_eq!(count(&result, "/errors/total"), 1, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/completed"), 1);
    assert_eq!(count(&result, "/totals/lost"), 1);
    assert_eq!(count(&result, "/totals/connects"), 2);
    result
}

#[test]
fn a_connection_that_the_server_closes_loses_its_requests_and_is_opened_again() {
    let notes = closed_with(0x100)["notes"].to_string();
    assert!(notes.contains("closed by the server"), "{notes}");
    let notes = closed_with(0x102)["notes"].to_string();
    assert!(notes.contains("closed by peer: enough"), "{notes}");
}

#[test]
fn an_idle_connection_that_the_server_forgets_is_opened_again() {
    let mut transport = TransportConfig::default();
    let soon = std::time::Duration::from_millis(700);
    transport.max_idle_timeout(Some(soon.try_into().expect("a time")));
    let server = Http3Server::by_hand_with(transport, |connection, _| async move {
        let _control = say(&connection, CONTROL).await;
        respond_always(&connection).await;
    });
    let command = format!(
        "--http3 -t1 -c1 -d3s -R1 -T30s --drain 30s {}",
        server.url()
    );
    // On a busy machine requests that are late follow each other sooner than the server forgets.
    let is_opened_again = (0..10).any(|_| {
        let result = measured(&command);
        assert_eq!(count(&result, "/totals/completed"), 3);
        assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
        count(&result, "/totals/connects") >= 2
    });
    assert!(is_opened_again);
}

#[test]
fn a_response_may_take_longer_than_the_server_keeps_an_idle_connection() {
    let mut transport = TransportConfig::default();
    let soon = std::time::Duration::from_secs(2);
    transport.max_idle_timeout(Some(soon.try_into().expect("a time")));
    let server = Http3Server::by_hand_with(transport, move |connection, _| async move {
        let _control = say(&connection, CONTROL).await;
        while let Some((_, stream)) = request(&connection).await {
            tokio::spawn(async move {
                tokio::time::sleep(soon * 3 / 2).await;
                respond(stream, HELLO).await;
            });
        }
    });
    let result = measured(&format!(
        "--http3 --streams 2 -t1 -c1 -n 2 -d60s -T30s {}",
        server.url()
    ));
    let errors = &result["errors"];
    assert_eq!(count(&result, "/totals/completed"), 2, "{errors}");
    assert_eq!(count(&result, "/errors/total"), 0, "{errors}");
    assert_eq!(count(&result, "/totals/connects"), 1);
}

#[test]
fn an_idle_timeout_that_never_ends_sets_no_timer_that_has_passed() {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(VarInt::MAX.into()));
    let server = Http3Server::by_hand_with(transport, |connection, _| async move {
        let _control = say(&connection, CONTROL).await;
        respond_always(&connection).await;
    });
    let result = measured(&format!(
        "--http3 -t1 -c1 -n 5 -d60s -T30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/completed"), 5);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
}

#[test]
fn a_request_that_times_out_is_given_up_and_its_connection_stays() {
    let given_up = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&given_up);
    let server = Http3Server::by_hand(move |connection, _| {
        let given_up = Arc::clone(&own);
        async move {
            let _control = say(&connection, CONTROL).await;
            while let Some((number, stream)) = request(&connection).await {
                if number > 0 {
                    respond(stream, HELLO).await;
                    continue;
                }
                let given_up = Arc::clone(&given_up);
                tokio::spawn(async move {
                    let stopped = stream.stopped().await.ok().flatten();
                    given_up.store(stopped.map_or(0, VarInt::into_inner), Ordering::SeqCst);
                });
            }
        }
    });
    let result = measured(&format!(
        "--http3 --streams 2 -t1 -c1 -d4s -R20 -T2s {}",
        server.url()
    ));
    let errors = &result["errors"];
    assert_eq!(count(&result, "/errors/timeout"), 1, "{errors}");
    assert_eq!(count(&result, "/errors/total"), 1, "{errors}");
    assert_eq!(count(&result, "/totals/lost"), 1);
    assert_eq!(count(&result, "/totals/connects"), 1);
    assert!(count(&result, "/latency/response/max") >= 2_000_000_000);
    // H3_REQUEST_CANCELLED
    assert_eq!(given_up.load(Ordering::SeqCst), 0x10c);
}

#[test]
fn a_server_that_is_slow_but_there_keeps_its_connection() {
    let server = first_connection(|connection| async move {
        let _control = say(&connection, CONTROL).await;
        let mut waiting = Vec::new();
        while let Some((_, stream)) = request(&connection).await {
            waiting.push(stream);
        }
    });
    let result = measured(&format!(
        "--http3 -t1 -c1 -n 3 -d60s -T1s --connect-timeout 30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/connects"), 1, "{}", result["notes"]);
    assert_eq!(count(&result, "/errors/timeout"), 3, "{}", result["errors"]);
}

#[test]
fn a_server_that_has_fallen_silent_is_left() {
    let is_silent = Arc::new(AtomicBool::new(false));
    let own = Arc::clone(&is_silent);
    let server = first_connection(move |connection| {
        let is_silent = Arc::clone(&own);
        async move {
            let _control = say(&connection, CONTROL).await;
            request(&connection).await.expect("the first");
            is_silent.store(true, Ordering::SeqCst);
            connection.closed().await;
        }
    });
    // from its first request on no datagram of the first connection arrives
    let way = lossy_way(server.address, move |client| {
        client > 0 || !is_silent.load(Ordering::SeqCst)
    });
    // four requests on the connection that is left, or six if it has acknowledged the first two, and the
    // rest on the next
    let result = measured(&format!(
        "--http3 --streams 2 -t1 -c1 -n 8 -d60s -T2s --connect-timeout 30s https://{way}/"
    ));
    assert_eq!(count(&result, "/totals/connects"), 2, "{}", result["notes"]);
    let completed = count(&result, "/totals/completed");
    assert!([2, 4].contains(&completed), "{}", result["errors"]);
    let (late, broken) = (
        count(&result, "/errors/timeout"),
        count(&result, "/errors/read"),
    );
    assert_eq!(late + broken + completed, 8, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/lost"), late + broken);
    let notes = result["notes"].to_string();
    assert!(notes.contains("acknowledges nothing"), "{notes}");
}

#[test]
fn datagrams_that_are_lost_are_sent_again() {
    let server = Http3Server::hello();
    let number = AtomicUsize::new(0);
    let lost = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&lost);
    let way = lossy_way(server.address, move |_| {
        let passes = number.fetch_add(1, Ordering::SeqCst) % 11 != 5;
        own.fetch_add(usize::from(!passes), Ordering::SeqCst);
        passes
    });
    let result = measured(&format!(
        "--http3 --streams 3 -t1 -c2 -n 200 -d60s -T30s --connect-timeout 30s https://{way}/"
    ));
    assert_eq!(count(&result, "/totals/completed"), 200);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(server.seen().len(), 200);
    assert!(lost.load(Ordering::SeqCst) > 5);
}

#[test]
fn frames_in_pieces_and_what_is_unknown_are_understood() {
    let server = Http3Server::by_hand(|connection, _| async move {
        // SETTINGS in pieces, with an unknown one (0x21) and the limits of QPACK; an unknown frame (0x5f)
        let mut control = connection.open_uni().await.expect("allowed");
        for piece in [
            &b"\0\x04"[..],
            b"\x05\x21",
            b"\x07\x01\x40\x64",
            b"\x40\x5f\x03xyz",
        ] {
            // 0x01 is the capacity of the table, 100 in two bytes; 0x21 has the value 7
            control.write_all(piece).await.expect("open");
            pause().await;
        }
        // streams of unknown types (0x21 and 0x54), and those of QPACK
        let _others = [
            say(&connection, b"\x21nothing").await,
            say(&connection, b"\x40\x54more").await,
            say(&connection, b"\x02").await,
            say(&connection, b"\x03").await,
        ];
        while let Some((_, mut stream)) = request(&connection).await {
            // unknown frames everywhere, an interim response (`:status: 103`), a body in three frames, trailers
            let frames = [
                &b"\x21\x02ab"[..],
                b"\x01\x03\0\0\xd8",
                b"\x40\x5f\0",
                b"\x01\x03\0\0\xd9",
                b"\0\x02he",
                b"\x21\0",
                b"\0\0",
                b"\0\x40\x03llo",
                b"\x01\x08\0\0\x23x-s\x011",
            ];
            for byte in frames.concat().chunks(1) {
                stream.write_all(byte).await.expect("open");
                pause().await;
            }
            stream.finish().expect("open");
        }
    });
    let file = temporary("lua");
    let text = "function response(status, headers, body)\n\
        assert(status == 200 and body == 'hello' and headers['x-s'] == '1')\nend\n";
    std::fs::write(&file, text).expect("a file");
    let result = measured(&format!(
        "--http3 --streams 2 -t1 -c1 -n 4 -d60s -T30s --expect length=5 -s {} {}",
        file.display(),
        server.url()
    ));
    std::fs::remove_file(&file).expect("ours");
    assert_eq!(count(&result, "/totals/completed"), 4);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
}

#[test]
fn a_server_that_breaks_the_rules_is_named_and_learns_of_it() {
    let learned = Arc::new(AtomicU64::new(0));
    let own = Arc::clone(&learned);
    let server = Http3Server::by_hand(move |connection, _| {
        let learned = Arc::clone(&own);
        async move {
            let _control = say(&connection, CONTROL).await;
            let (_, stream) = request(&connection).await.expect("one");
            // a body without a head
            respond(stream, b"\0\x05hello").await;
            if let ConnectionError::ApplicationClosed(close) = connection.closed().await {
                learned.store(close.error_code.into_inner(), Ordering::SeqCst);
            }
        }
    });
    let result = measured(&format!(
        "--http3 -t1 -c1 -n 3 -d60s -T30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/errors/http3"), 3, "{}", result["errors"]);
    assert_eq!(count(&result, "/errors/total"), 3, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/lost"), 3);
    let notes = result["notes"].to_string();
    assert!(notes.contains("HTTP/3: frame_unexpected"), "{notes}");
    assert!(result["warnings"].to_string().contains("http3-errors"));
    // H3_FRAME_UNEXPECTED
    wait_until(|| learned.load(Ordering::SeqCst) == 0x105);
    assert_eq!(learned.load(Ordering::SeqCst), 0x105);
}

#[test]
fn a_response_of_another_length_than_it_announces_does_not_count() {
    let server = Http3Server::by_hand(|connection, _| async move {
        let _control = say(&connection, CONTROL).await;
        while let Some((number, stream)) = request(&connection).await {
            // content-length (static 4 by name): 9
            let head = b"\x01\x06\0\0\xd9\x54\x019";
            let body = if number % 2 == 0 {
                &b"\0\x03hel"[..]
            } else {
                b"\0\x09hellohell"
            };
            respond(stream, &[&head[..], body].concat()).await;
        }
    });
    let result = measured(&format!(
        "--http3 -t1 -c1 -n 10 -d60s -T30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/completed"), 5);
    let errors = &result["errors"];
    assert_eq!(count(&result, "/errors/stream_reset"), 5, "{errors}");
    assert_eq!(count(&result, "/totals/connects"), 1);
}

#[test]
fn scripts_make_requests_and_see_answers() {
    let server = Http3Server::hello();
    let file = temporary("lua");
    let text = "local n = 0\n\
        function request() n = n + 1; return wrk.format('GET', '/' .. n, {['X-N'] = n}) end\n\
        function response(status, headers, body)\n\
          assert(status == 200 and headers['x-token'] == 't1' and body == 'hello')\nend\n";
    std::fs::write(&file, text).expect("a file");
    let result = measured(&format!(
        "--http3 --streams 3 -t1 -c1 -n 30 -d60s -T30s -s {} {}",
        file.display(),
        server.url()
    ));
    std::fs::remove_file(&file).expect("ours");
    assert_eq!(count(&result, "/totals/completed"), 30);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    let seen = server.seen();
    let each: HashSet<_> = seen.iter().map(|one| &one.uri).collect();
    assert_eq!((seen.len(), each.len()), (30, 30), "each is another one");
    assert!(seen.iter().all(|one| one.fields[0].starts_with("x-n=")));
}

#[test]
fn a_response_that_is_reset_leaves_nothing_in_the_next_on_its_stream() {
    let server = Http3Server::by_hand(|connection, _| async move {
        let _control = say(&connection, CONTROL).await;
        while let Some((number, mut stream)) = request(&connection).await {
            if number % 2 == 1 {
                respond(stream, HELLO).await;
                continue;
            }
            // `:status: 200`, `x-s: 1`, and a part of a body
            let part = b"\x01\x09\0\0\xd9\x23x-s\x011\0\x05he";
            stream.write_all(part).await.expect("open");
            // in packets of their own: what is not read before a reset is lost
            pause().await;
            stream.reset(0x102u32.into()).expect("open");
        }
    });
    let file = temporary("lua");
    let text = "function response(status, headers, body)\n\
        assert(status == 200 and body == 'hello' and headers['x-s'] == nil)\nend\n";
    std::fs::write(&file, text).expect("a file");
    let result = measured(&format!(
        "--http3 -t1 -c1 -n 20 -d60s -T30s -s {} {}",
        file.display(),
        server.url()
    ));
    std::fs::remove_file(&file).expect("ours");
    let errors = &result["errors"];
    assert_eq!(count(&result, "/totals/completed"), 10, "{errors}");
    assert_eq!(count(&result, "/errors/stream_reset"), 10, "{errors}");
}

#[test]
fn users_who_think_are_no_more_where_the_server_allows_one_stream_after_the_other() {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(1u32.into());
    let server = Http3Server::by_hand_with(transport, |connection, _| async move {
        let _control = say(&connection, CONTROL).await;
        respond_always(&connection).await;
    });
    let file = temporary("lua");
    // one sends while the others think
    let text = "local n = 0\nfunction delay() n = n + 1; return 500 + n % 4 * 50 end\n";
    std::fs::write(&file, text).expect("a file");
    let result = measured(&format!(
        "--http3 --streams 4 -t1 -c1 -d3s -T30s -s {} {}",
        file.display(),
        server.url()
    ));
    std::fs::remove_file(&file).expect("ours");
    // four users, each of whom thinks six times at most
    let completed = count(&result, "/totals/completed");
    assert!((1..=24).contains(&completed), "{completed}");
}

#[test]
fn certificates_are_verified_where_that_is_asked_for() {
    let (server, other) = (Http3Server::hello(), Http3Server::hello());
    let authority = |certificate: &[u8]| {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(certificate);
        let file = temporary("pem");
        let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
        std::fs::write(&file, pem).expect("a file");
        file
    };
    let (right, wrong) = (
        authority(&server.certificate),
        authority(&other.certificate),
    );
    let line = |file: &std::path::Path| {
        format!(
            "--http3 -t1 -c1 -n 5 -d20s -T30s --sni localhost --ca {} {}",
            file.display(),
            server.url()
        )
    };
    let good = measured(&line(&right));
    assert_eq!(count(&good, "/totals/completed"), 5);
    assert_eq!(count(&good, "/errors/total"), 0, "{}", good["errors"]);
    let bad = unreached(&line(&wrong));
    assert!(count(&bad, "/errors/connect/other") > 0);
    assert_eq!(count(&bad, "/totals/connects"), 0);
    let notes = bad["notes"].to_string();
    assert!(notes.contains("invalid peer certificate"), "{notes}");
    for file in [right, wrong] {
        std::fs::remove_file(file).expect("ours");
    }
}

#[test]
fn a_port_where_nothing_listens_is_refused() {
    let socket = UdpSocket::bind(own_address()).expect("a port");
    let address = socket.local_addr().expect("bound");
    drop(socket);
    let result = unreached(&format!(
        "--http3 -t1 -c2 -d300ms -T30s --connect-timeout 30s https://{address}/"
    ));
    assert!(count(&result, "/errors/connect/refused") >= 2);
    assert_eq!(count(&result, "/errors/connect/timeout"), 0);
    assert_eq!(count(&result, "/totals/connects"), 0);
}

#[test]
fn a_server_that_does_not_answer_is_a_timeout() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let address = socket.local_addr().expect("bound");
    let result = unreached(&format!(
        "--http3 -t1 -c2 -d300ms -T30s --connect-timeout 500ms https://{address}/"
    ));
    assert!(count(&result, "/errors/connect/timeout") >= 2);
}

#[test]
fn what_does_not_go_with_http3_is_refused() {
    let table = [
        ("--http3 http://127.0.0.1:1/", "--http3: needs https://"),
        (
            "--http3 --http2 https://127.0.0.1:1/",
            "--http3: does not work with --http2 (remove one)",
        ),
        (
            "--http3 --grpc https://127.0.0.1:1/",
            "--http3: does not work with --grpc (remove one)",
        ),
        (
            "--http3 udp://127.0.0.1:1",
            "--http3: does not work with tcp:// and udp://",
        ),
        (
            "--http3 wss://127.0.0.1:1/",
            "--http3: does not work with ws://",
        ),
        (
            "--http3 --proxy-protocol v2 https://127.0.0.1:1/",
            "--proxy-protocol: does not work with --http3",
        ),
        (
            "--http3 --abort https://127.0.0.1:1/",
            "--abort: does not work with --http3",
        ),
        (
            "--http3 --tcp-mss 1000 https://127.0.0.1:1/",
            "--tcp-mss: does not work with --http3",
        ),
        (
            "--http3 --depth 2 https://127.0.0.1:1/",
            "--depth: does not work with --http3 (use --streams)",
        ),
        (
            "--http3 --rx-timestamps https://127.0.0.1:1/",
            "--rx-timestamps: does not work with --http3",
        ),
        (
            "--http3 --early-data https://127.0.0.1:1/",
            "--early-data: does not work with --http3",
        ),
        (
            "--http3 --tls-resume https://127.0.0.1:1/",
            "--tls-resume: does not work with --http3",
        ),
        (
            "--http3 --tls-version 1.2 https://127.0.0.1:1/",
            "--http3: needs TLS 1.3",
        ),
        (
            "--http3 -H Connection:close https://127.0.0.1:1/",
            "leave it out with --http3",
        ),
        ("--http3 --sink", "--sink: does not work with --http3"),
    ];
    for (line, message) in table {
        let output = run(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}: {text}");
        assert!(text.contains(message), "{line}: {text}");
        assert_eq!(text.lines().count(), 1, "{line}: {text}");
    }
}
