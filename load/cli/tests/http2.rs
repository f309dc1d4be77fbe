//! HTTP/2: the same loops, figures and scripts as over HTTP/1.1, on streams.

#[path = "support/http2.rs"]
mod http2;
mod support;

use http2::{Http2Server, Side};
use load_http2::frame::{self, flag, kind};
use load_http2::hpack;
use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::Arc;
use std::time::Duration;
use support::{
    always, count, is_installed, measured, measured_or_not, run, temporary, unreached, wait_until,
    Server, HELLO,
};

#[test]
fn a_closed_loop_over_streams_counts_what_the_server_counts() {
    let server = Http2Server::hello();
    let result = measured(&format!(
        "--http2 --streams 5 -t2 -c4 -d2s -T30s {}",
        server.url()
    ));
    // the server's threads read what was sent when they get a core
    wait_until(|| server.connections() == 4);
    let seen = server.seen();
    let (sent, completed) = (
        count(&result, "/totals/sent"),
        count(&result, "/totals/completed"),
    );
    assert!(sent >= seen.len() as u64 && sent - seen.len() as u64 <= 20);
    assert_eq!(completed + count(&result, "/totals/unfinished"), sent);
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/connects"), 4);
    assert_eq!(count(&result, "/latency/service/count"), completed);
    assert_eq!(count(&result, "/totals/status/200"), completed);
    assert_eq!(result["plan"]["streams"], 5);
    assert_eq!(server.connections(), 4);
    let residual = result["little"]["residual"].as_f64().expect("a figure");
    // what is in flight while the machine stands still at the end is in no sum
    assert!(
        residual.abs() < 0.45,
        "N is connections x streams: {residual}"
    );
    // remembered or not, each block says the same
    let fields = [
        ":method=GET",
        ":scheme=http",
        &format!(":authority={}", server.address),
        ":path=/",
    ];
    assert!(
        seen.iter().all(|asked| asked.fields == fields),
        "{:?}",
        seen[0]
    );
}

/// How many requests of a connection are under way at once, at most.
fn most_at_once(settings: &'static [(u16, u32)], streams: usize) -> usize {
    let most = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&most);
    let server = Http2Server::start(settings, move |mut side, _| {
        let mut waiting = Vec::new();
        while let Some(asked) = side.request() {
            waiting.push(asked.stream);
            own.fetch_max(waiting.len(), Ordering::SeqCst);
            if waiting.len() == 3 {
                for stream in waiting.drain(..) {
                    side.answer(stream, "200", b"");
                }
            }
        }
    });
    let line = format!(
        "--http2 --streams {streams} -t1 -c1 -n 300 -d60s -T30s {}",
        server.url()
    );
    assert_eq!(count(&measured(&line), "/totals/completed"), 300);
    most.load(Ordering::SeqCst)
}

#[test]
fn as_many_streams_as_asked_for_and_as_the_server_allows() {
    assert_eq!(most_at_once(&[], 3), 3);
    assert_eq!(most_at_once(&[(3, 3)], 50), 3);
}

#[test]
fn streams_that_the_server_allows_later_are_used() {
    let most = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&most);
    let server = Http2Server::start(&[(3, 1)], move |mut side, _| {
        let mut waiting = Vec::new();
        while let Some(asked) = side.request() {
            if asked.stream == 1 {
                side.send(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 4]);
            }
            waiting.push(asked.stream);
            own.fetch_max(waiting.len(), Ordering::SeqCst);
            if waiting.len() == 4 {
                for stream in waiting.drain(..) {
                    side.answer(stream, "200", b"");
                }
            }
        }
    });
    let line = format!(
        "--http2 --streams 9 -t1 -c1 -n 400 -d60s -T30s {}",
        server.url()
    );
    assert_eq!(count(&measured(&line), "/totals/completed"), 400);
    assert_eq!(most.load(Ordering::SeqCst), 4);
}

#[test]
fn a_probe_waits_for_its_answer_before_it_asks_again() {
    let server = Http2Server::start(&[], |mut side, log| {
        while let Some(asked) = side.request() {
            log(&asked); // and never an answer
        }
    });
    let line = format!(
        "--http2 --streams 8 -t1 -c4 -d500ms -R2 --probe 100 --drain 100ms -T30s {}",
        server.url()
    );
    measured(&line);
    let mut asked = std::collections::HashMap::new();
    for one in server.seen() {
        *asked.entry(one.connection).or_insert(0) += 1;
    }
    assert!(asked.values().all(|&count| count == 1), "{asked:?}");
}

#[test]
fn a_stream_that_hangs_delays_no_other_request() {
    let server = Http2Server::start(&[], |mut side, log| {
        while let Some(asked) = side.request() {
            log(&asked);
            if asked.stream != 5 && !side.answer(asked.stream, "200", b"hello") {
                return;
            }
        }
    });
    let line = format!(
        "--http2 --streams 8 -t1 -c1 -d1s -R100 --drain 4s -T30s {}",
        server.url()
    );
    let result = measured(&line);
    assert_eq!(count(&result, "/totals/sent"), 100);
    assert_eq!(count(&result, "/totals/completed"), 99);
    assert_eq!(count(&result, "/latency/response/count"), 100);
    assert_eq!(count(&result, "/latency/response/lost"), 1);
    assert_eq!(server.seen().len(), 100);
}

#[test]
fn a_request_that_times_out_is_given_up_and_its_connection_stays() {
    let given_up = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&given_up);
    let server = Http2Server::start(&[], move |mut side, _| {
        while let Some(asked) = side.request() {
            own.store(side.given_up.len(), Ordering::SeqCst);
            if asked.stream != 1 && !side.answer(asked.stream, "200", b"hello") {
                return;
            }
        }
    });
    let line = format!(
        "--http2 --streams 2 -t1 -c1 -d4s -R20 -T2s {}",
        server.url()
    );
    let result = measured(&line);
    assert_eq!(count(&result, "/errors/timeout"), 1);
    assert_eq!(count(&result, "/totals/lost"), 1);
    assert_eq!(count(&result, "/totals/connects"), 1);
    assert_eq!(given_up.load(Ordering::SeqCst), 1);
    assert!(count(&result, "/latency/response/max") >= 2_000_000_000);
}

/// A server that treats its first connection with `first` and responds at once on all others.
fn first_connection(first: impl Fn(&mut Side) + Send + Sync + 'static) -> Http2Server {
    let number = AtomicUsize::new(0);
    Http2Server::start(&[], move |mut side, _| {
        if number.fetch_add(1, Ordering::SeqCst) == 0 {
            first(&mut side);
            return;
        }
        while let Some(asked) = side.request() {
            if !side.answer(asked.stream, "200", b"hello") {
                return;
            }
        }
    })
}

#[test]
fn a_server_that_has_fallen_silent_is_left() {
    let server = first_connection(|side| {
        side.is_awake = false;
        while side.request().is_some() {}
    });
    // four requests on the connection that is left, and two on the next
    let line = format!(
        "--http2 --streams 2 -t1 -c1 -n 6 -d60s -T2s --connect-timeout 30s {}",
        server.url()
    );
    let result = measured(&line);
    assert_eq!(count(&result, "/totals/connects"), 2, "{}", result["notes"]);
    assert_eq!(
        count(&result, "/totals/completed"),
        2,
        "{}",
        result["errors"]
    );
    // each stream waited for one answer before the server was asked whether it is there, and for one after
    let (late, broken) = (
        count(&result, "/errors/timeout"),
        count(&result, "/errors/read"),
    );
    assert_eq!(late + broken, 4, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/lost"), 4);
    let notes = result["notes"].to_string();
    assert!(notes.contains("does not answer PING"), "{notes}");
}

#[test]
fn a_server_that_is_slow_but_there_keeps_its_connection() {
    let pings = Arc::new(AtomicUsize::new(0));
    let own = Arc::clone(&pings);
    let server = first_connection(move |side| {
        while side.request().is_some() {
            own.store(side.pings, Ordering::SeqCst);
        }
    });
    // the second and the third wait for a server that has answered PING
    let result = measured(&format!(
        "--http2 -t1 -c1 -n 3 -d60s -T2s --connect-timeout 30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/connects"), 1, "{}", result["notes"]);
    assert_eq!(count(&result, "/errors/timeout"), 3, "{}", result["errors"]);
    wait_until(|| pings.load(Ordering::SeqCst) > 0);
    assert!(pings.load(Ordering::SeqCst) > 0);
}

/// A server that never answers the first request on its first connection.
fn forgetful() -> Http2Server {
    Http2Server::start(&[], |mut side, log| {
        while let Some(asked) = side.request() {
            log(&asked);
            // connection 0 is the test whether the server is there
            let is_forgotten = side.number == 1 && asked.stream == 1;
            if !is_forgotten && !side.answer(asked.stream, "200", b"hello") {
                return;
            }
        }
    })
}

/// How often a connection of a server was asked.
fn asked_on(server: &Http2Server, connection: usize) -> usize {
    let seen = server.seen();
    let own = seen.iter().filter(|asked| asked.connection == connection);
    own.count()
}

#[test]
fn a_connection_that_is_used_up_carries_no_further_request() {
    // the answer to the second request uses it up, and the first is given up later
    for options in ["", "-R50", "-R50 --dispatch any"] {
        let server = forgetful();
        let result = measured(&format!(
            "--http2 --streams 2 -t1 -c1 -n 6 -d60s -T2s --connect-timeout 30s --drain 30s \
             --requests-per-connection 1 {options} {}",
            server.url()
        ));
        assert_eq!(count(&result, "/errors/timeout"), 1, "{options}");
        assert_eq!(count(&result, "/totals/completed"), 5, "{options}");
        assert_eq!(asked_on(&server, 1), 2, "{options}");
    }
}

#[test]
fn a_request_that_times_out_on_a_connection_too_many_is_its_last() {
    // of each connection's requests one is answered, after half a second; when the first one is given up in
    // the second step, the one that followed the answer is still under way
    let server = Http2Server::start(&[], |mut side, log| {
        while let Some(asked) = side.request() {
            log(&asked);
            if asked.stream == 3 {
                std::thread::sleep(Duration::from_millis(500));
                side.answer(asked.stream, "200", b"hello");
            }
        }
    });
    measured(&format!(
        "--http2 --streams 2 -t1 -c2..1:1 --step 1s -T1500ms --connect-timeout 30s {}",
        server.url()
    ));
    // without the third where a busy machine has brought the answer in the second step
    wait_until(|| asked_on(&server, 2) >= 2);
    assert!((2..=3).contains(&asked_on(&server, 2)));
}

#[test]
fn a_server_that_allows_no_streams_is_reported() {
    let server = Http2Server::start(&[(3, 0)], |mut side, _| while side.request().is_some() {});
    let result = unreached(&format!(
        "--http2 -t1 -c2 -d1500ms -T200ms --connect-timeout 30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/sent"), 0);
    let errors = count(&result, "/errors/connect/other");
    assert!((2..20).contains(&errors), "{}", result["errors"]);
    let notes = result["notes"].to_string();
    assert!(notes.contains("allows no streams"), "{notes}");
}

#[test]
fn a_server_that_goes_away_and_never_answers_is_left() {
    let server = first_connection(|side| {
        let asked = side.request().expect("one");
        let last = asked.stream.to_be_bytes();
        side.send(kind::GOAWAY, 0, 0, &[&last[..], &[0; 4]].concat());
        while side.request().is_some() {}
    });
    // the first request on the connection that is left, and the second on the next
    let result = measured(&format!(
        "--http2 -t1 -c1 -n 2 -d60s -T2s --connect-timeout 30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/errors/timeout"), 1, "{}", result["errors"]);
    assert_eq!(count(&result, "/errors/total"), 1, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/connects"), 2);
    assert_eq!(count(&result, "/totals/completed"), 1);
}

#[test]
fn a_request_whose_successor_is_due_already_is_sent_at_once() {
    let server = Http2Server::hello();
    // one stream, and always two requests that are due at the same moment, far from the next two
    let pair = |number: u32| {
        let line = format!("{} GET /\n", f64::from(number) * 0.05);
        line.repeat(2)
    };
    let log = temporary("txt");
    std::fs::write(&log, (0..60).map(pair).collect::<String>()).expect("a file");
    let line = format!(
        "--http2 -t1 -c1 -T30s --wait sleep --replay {} {}",
        log.display(),
        server.url()
    );
    let result = measured(&line);
    std::fs::remove_file(&log).expect("ours");
    // requests that wait for the next look at the clock wait for up to 0.1 s, all of them; a busy machine that
    // stands still now and then keeps a few waiting
    let usual = result["latency"]["response"]["quantiles"]["0.5"].as_f64();
    assert!(usual.expect("a figure") < 25e6, "{usual:?} ns");
}

#[test]
fn a_response_of_another_length_than_it_announces_does_not_count() {
    let server = Http2Server::start(&[], |mut side, _| {
        while let Some(asked) = side.request() {
            let mut head = Vec::new();
            hpack::put_plain(b":status", b"200", &mut head);
            hpack::put_plain(b"content-length", b"9", &mut head);
            side.send(kind::HEADERS, flag::END_HEADERS, asked.stream, &head);
            let body = if asked.stream % 4 == 1 {
                &b"hel"[..]
            } else {
                b"hellohell"
            };
            if !side.send(kind::DATA, flag::END_STREAM, asked.stream, body) {
                return;
            }
        }
    });
    let line = |more: &str| format!("--http2 -t1 -c1 -d500ms -R20 -T30s {more} {}", server.url());
    let result = measured(&line(""));
    assert_eq!(count(&result, "/totals/completed"), 5);
    assert_eq!(
        count(&result, "/errors/stream_reset"),
        5,
        "{}",
        result["errors"]
    );
    assert_eq!(count(&result, "/totals/lost"), 5);
}

#[test]
fn streams_that_are_reset_are_lost_and_reported() {
    let server = Http2Server::start(&[], |mut side, _| {
        while let Some(asked) = side.request() {
            let reset = asked.stream % 8 == 1;
            let sent = if reset {
                side.send(kind::RST_STREAM, 0, asked.stream, &[0, 0, 0, 2])
            } else {
                side.answer(asked.stream, "200", b"hello")
            };
            if !sent {
                return;
            }
        }
    });
    let result = measured(&format!(
        "--http2 --streams 2 -t1 -c1 -d1s -R100 -T30s {}",
        server.url()
    ));
    assert_eq!(
        count(&result, "/errors/stream_reset"),
        25,
        "{}",
        result["errors"]
    );
    assert_eq!(count(&result, "/totals/lost"), 25);
    assert_eq!(count(&result, "/latency/response/count"), 100);
    assert!(
        result["notes"].to_string().contains("code 2"),
        "{}",
        result["notes"]
    );
    assert!(result["warnings"].to_string().contains("stream-resets"));
}

#[test]
fn a_later_response_has_nothing_of_one_that_was_reset() {
    let server = Http2Server::start(&[], |mut side, _| {
        while let Some(asked) = side.request() {
            let stream = asked.stream;
            let sent = if stream % 8 == 1 {
                let mut block = Vec::new();
                hpack::put_plain(b":status", b"200", &mut block);
                side.send(kind::HEADERS, flag::END_HEADERS, stream, &block)
                    && side.send(kind::DATA, 0, stream, b"needle")
                    && side.send(kind::RST_STREAM, 0, stream, &[0, 0, 0, 2])
            } else {
                side.answer(stream, "200", b"hay")
            };
            if !sent {
                return;
            }
        }
    });
    let line = "--http2 --streams 1 -t1 -c1 -n 40 -d60s -T30s --expect body~needle";
    let result = measured(&format!("{line} {}", server.url()));
    assert_eq!(count(&result, "/errors/stream_reset"), 10);
    assert_eq!(count(&result, "/totals/completed"), 30);
    assert_eq!(
        count(&result, "/errors/unexpected"),
        30,
        "{}",
        result["notes"]
    );
}

#[test]
fn a_chunked_body_is_sent_in_frames() {
    let server = Http2Server::hello();
    let options = "--http2 -t1 -c1 -n 2 -d60s -T30s -H Transfer-Encoding:chunked --body hello";
    let result = measured(&format!("{options} {}", server.url()));
    assert_eq!(count(&result, "/totals/completed"), 2);
    for asked in server.seen() {
        assert_eq!(asked.body, b"hello");
        let fields = asked.fields.join(" ");
        assert!(!fields.contains("transfer-encoding"), "{fields}");
    }
}

#[test]
fn frames_that_come_with_the_settings_are_read() {
    // the body needs windows that the server has widened before anything was asked
    let mut first = Vec::new();
    frame::write(&mut first, kind::SETTINGS, 0, 0, &[0, 4, 0, 2, 0, 0]);
    // a frame of an unknown type is ignored (RFC 9113, 4.1)
    frame::write(&mut first, 0xfa, 0, 0, &[0; 5000]);
    frame::write(&mut first, kind::WINDOW_UPDATE, 0, 0, &[0, 2, 0, 0]);
    let server = Http2Server::start_with(first, |mut side, log| {
        // anything that it said later would show what had come before
        (side.is_generous, side.is_awake) = (false, false);
        while let Some(asked) = side.request() {
            log(&asked);
            if !side.answer(asked.stream, "200", b"hello") {
                return;
            }
        }
    });
    let file = temporary("body");
    std::fs::write(&file, vec![b'z'; 100_000]).expect("a file");
    let line = format!(
        "--http2 -t1 -c1 -n 1 -d60s -T10s --body-file {} {}",
        file.display(),
        server.url()
    );
    let result = measured(&line);
    std::fs::remove_file(&file).expect("ours");
    let completed = count(&result, "/totals/completed");
    assert_eq!(completed, 1, "{}", result["errors"]);
    assert_eq!(server.seen()[0].body.len(), 100_000);
}

#[test]
fn a_server_that_goes_away_is_left_in_good_order() {
    let server = Http2Server::start(&[], |mut side, _| {
        while let Some(asked) = side.request() {
            let last = asked.stream.to_be_bytes();
            if asked.stream == 19 {
                side.send(kind::GOAWAY, 0, 0, &[&last[..], &[0; 4]].concat());
            }
            if asked.stream <= 19 && !side.answer(asked.stream, "200", b"hello") {
                return;
            }
        }
    });
    let result = measured(&format!(
        "--http2 -t1 -c1 -d1s -R100 -T30s {}",
        server.url()
    ));
    assert_eq!(
        count(&result, "/totals/completed"),
        100,
        "{}",
        result["errors"]
    );
    // Each takes ten requests; the last one's GOAWAY may come while the window is still open.
    let connects = count(&result, "/totals/connects");
    assert!((10..=11).contains(&connects), "{connects}");
    let many = measured(&format!(
        "--http2 --streams 20 -t1 -c1 -n 200 -d60s -T30s {}",
        server.url()
    ));
    let stale = count(&many, "/errors/stale");
    assert!(stale > 0, "ten of twenty were not looked at");
    assert_eq!(count(&many, "/totals/lost"), stale);
}

#[test]
fn a_server_that_takes_no_request_at_all_is_a_connect_error_and_never_a_hot_loop() {
    let server = Http2Server::start(&[], |mut side, _| {
        side.send(kind::GOAWAY, 0, 0, &[0; 8]);
    });
    // GOAWAY may come with the settings or a moment after them
    let (result, _) = measured_or_not(&format!(
        "--http2 -t1 -c4 -d2s -R 20 -T 30s --drain 100ms {}",
        server.url()
    ));
    let tries = count(&result, "/errors/connect/other");
    assert!((4..200).contains(&tries), "{}", result["errors"]);
    assert!(count(&result, "/totals/connects") < 200);
    assert_eq!(count(&result, "/totals/completed"), 0);
}

#[test]
fn a_server_that_breaks_the_rules_is_named_and_left() {
    let server = Http2Server::start(&[], |mut side, _| {
        while let Some(asked) = side.request() {
            if !side.send(kind::PUSH_PROMISE, 4, asked.stream, &[0, 0, 0, 2, 0x82]) {
                return;
            }
        }
    });
    let result = measured(&format!(
        "--http2 --streams 4 -t1 -c1 -n 40 -d60s -T30s {}",
        server.url()
    ));
    let faults = count(&result, "/errors/http2");
    assert!(faults > 0 && count(&result, "/totals/completed") == 0);
    assert_eq!(
        count(&result, "/totals/lost"),
        faults + count(&result, "/errors/read")
    );
    assert!(result["notes"]
        .to_string()
        .contains("HTTP/2: protocol_error"));
}

#[test]
fn a_server_of_http1_is_reported_as_one() {
    let server = Server::start(always(HELLO));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            use std::io::Write;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let result = unreached(&format!("--http2 -t1 -c1 -d300ms http://{address}/"));
    assert!(count(&result, "/errors/connect/other") > 0);
    let notes = result["notes"].to_string();
    assert!(notes.contains("does not speak HTTP/2"), "{notes}");
    drop(server);
}

/// Answers a gRPC call with a message and this `grpc-status` in its trailers; without a status,
/// with neither message nor trailers.
fn answer_call(side: &mut Side, stream: u32, status: Option<&str>) -> bool {
    let (mut head, mut trailers) = (Vec::new(), Vec::new());
    hpack::put_plain(b":status", b"200", &mut head);
    hpack::put_plain(b"content-type", b"application/grpc", &mut head);
    let Some(status) = status else {
        let last = flag::END_HEADERS | flag::END_STREAM;
        return side.send(kind::HEADERS, last, stream, &head);
    };
    hpack::put_plain(b"grpc-status", status.as_bytes(), &mut trailers);
    side.send(kind::HEADERS, flag::END_HEADERS, stream, &head)
        && side.send(kind::DATA, 0, stream, b"\0\0\0\0\x02ok")
        && side.send(
            kind::HEADERS,
            flag::END_HEADERS | flag::END_STREAM,
            stream,
            &trailers,
        )
}

#[test]
fn a_grpc_call_is_one_message_and_its_status_shows_how_it_went() {
    let server = Http2Server::start(&[], |mut side, log| {
        let mut number = 0;
        while let Some(asked) = side.request() {
            log(&asked);
            number += 1;
            let status = match number % 4 {
                0 => Some("14"),
                1 => None,
                _ => Some("0"),
            };
            if !answer_call(&mut side, asked.stream, status) {
                return;
            }
        }
    });
    let url = format!("{}shop.Orders/Get", server.url());
    let result = measured(&format!(
        "--grpc --body hello -t1 -c1 -d1s -R100 -T30s {url}"
    ));
    let seen = server.seen();
    let has = |field: &str| seen[0].fields.iter().any(|own| own == field);
    for field in [
        ":method=POST",
        ":path=/shop.Orders/Get",
        "content-type=application/grpc",
        "te=trailers",
    ] {
        assert!(has(field), "{field}: {:?}", seen[0].fields);
    }
    assert!(seen.iter().all(|asked| asked.body == b"\0\0\0\0\x05hello"));
    assert_eq!(count(&result, "/totals/completed"), 100);
    assert_eq!(count(&result, "/errors/grpc"), 50, "{}", result["errors"]);
    assert_eq!(count(&result, "/errors/total"), 50, "{}", result["errors"]);
    assert_eq!(count(&result, "/latency/response/count"), 100);
    let notes = result["notes"].to_string();
    assert!(notes.contains("grpc-status: 14"), "{notes}");
    assert!(notes.contains("without grpc-status"), "{notes}");
    assert!(result["warnings"].to_string().contains("grpc-errors"));
    assert_eq!(result["plan"]["http2"], true);
}

#[test]
fn bodies_pass_through_small_windows() {
    static SETTINGS: [(u16, u32); 1] = [(4, 1000)];
    let server = Http2Server::start(&SETTINGS, |mut side: Side, log| {
        while let Some(asked) = side.request() {
            log(&asked);
            if !side.answer(asked.stream, "200", b"") {
                return;
            }
        }
    });
    let file = temporary("body");
    std::fs::write(&file, vec![b'z'; 100_000]).expect("a file");
    let line = format!(
        "--http2 --streams 2 -t1 -c1 -d1s -R10 -T30s --body-file {} {}",
        file.display(),
        server.url()
    );
    let result = measured(&line);
    std::fs::remove_file(&file).expect("ours");
    assert_eq!(
        count(&result, "/totals/completed"),
        10,
        "{}",
        result["errors"]
    );
    let seen = server.seen();
    assert!(seen.iter().all(|asked| asked.body.len() == 100_000));
    assert!(seen[0].fields.contains(&":method=POST".to_string()));
    assert!(seen[0]
        .fields
        .contains(&"content-length=100000".to_string()));
}

#[test]
fn scripts_make_requests_and_see_answers() {
    let server = Http2Server::hello();
    let file = temporary("lua");
    let text = "local n = 0\n\
        function request() n = n + 1; return wrk.format('GET', '/' .. n, {['X-N'] = n}) end\n\
        function response(status, headers, body)\n\
          assert(status == 200 and headers['x-token'] == 't1' and body == 'hello')\n\
          if n >= 20 then wrk.thread:stop() end\nend\n";
    std::fs::write(&file, text).expect("a file");
    let line = format!(
        "--http2 --streams 3 -t1 -c1 -d3s -T30s -s {} {}",
        file.display(),
        server.url()
    );
    let result = measured(&line);
    std::fs::remove_file(&file).expect("ours");
    assert_eq!(count(&result, "/errors/total"), 0);
    let seen = server.seen();
    // Of the twenty that were made, the other two streams' may wait to be sent as the thread stops.
    assert!((18..=26).contains(&seen.len()), "{}", seen.len());
    let paths: HashSet<&String> = seen.iter().map(|asked| &asked.fields[3]).collect();
    assert_eq!(paths.len(), seen.len(), "each is another one");
    assert!(seen[0].fields.iter().any(|field| field.starts_with("x-n=")));
}

#[test]
fn what_does_not_go_with_http2_is_refused() {
    let server = Http2Server::hello();
    let url = server.url();
    for (line, message) in [
        ("--streams 2", "--streams: needs --http2"),
        ("--http2 --depth 2", "--depth: does not work with --http2"),
        (
            "--http2 --rx-timestamps",
            "--rx-timestamps: does not work with --http2",
        ),
        (
            "--http2 --streams 20000",
            "--streams: out of range (at most 10000)",
        ),
        (
            "--http2 -H Connection:close",
            "'Connection: close' is of HTTP/1.1",
        ),
    ] {
        let output = run(&format!("{line} {url}"));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}: {text}");
        assert!(text.contains(message), "{line}: {text}");
    }
    assert_eq!(run("--http2 --sink").status.code(), Some(2));
}

/// A server of somebody else's; ended with the test.
struct Peer {
    child: Child,
    folder: PathBuf,
}

impl Drop for Peer {
    fn drop(&mut self) {
        // the child may have ended already
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A port, and the socket that listens at it for a program that is to be started: what connects before
/// the program runs waits for it, and no other program can take the port.
fn listening() -> (OwnedFd, u16) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    (listener.into(), port)
}

fn start(mut command: Command, folder: PathBuf) -> Peer {
    let child = command.stderr(Stdio::null()).spawn();
    let child = child.expect("it starts");
    Peer { child, folder }
}

fn folder() -> PathBuf {
    let folder = temporary("peer");
    std::fs::create_dir(&folder).expect("a folder");
    folder
}

/// Bytes as nginx wants to read them.
fn pem(label: &str, bytes: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .map(|start| &text[start..text.len().min(start + 64)])
        .collect();
    format!(
        "-----BEGIN {label}-----\n{}\n-----END {label}-----\n",
        lines.join("\n")
    )
}

#[test]
fn nginx_is_understood_in_the_clear_and_by_alpn() {
    if !is_installed("nginx") {
        return;
    }
    let (folder, (plain_socket, plain), (secure_socket, secure)) =
        (folder(), listening(), listening());
    let certified =
        rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    let place = folder.display();
    std::fs::write(
        folder.join("c.pem"),
        pem("CERTIFICATE", certified.cert.der()),
    )
    .expect("a file");
    std::fs::write(
        folder.join("k.pem"),
        pem("PRIVATE KEY", &certified.key_pair.serialize_der()),
    )
    .expect("a file");
    let config = format!(
        "daemon off; pid {place}/pid; error_log {place}/log; events {{}}\n\
         http {{ access_log off; keepalive_requests 100; client_body_temp_path {place}/b;\n\
         server {{ listen 127.0.0.1:{plain} http2; listen 127.0.0.1:{secure} ssl http2;\n\
         ssl_certificate {place}/c.pem; ssl_certificate_key {place}/k.pem;\n\
         location / {{ return 200 hello; }} location /none {{ return 404; }} }} }}"
    );
    std::fs::write(folder.join("conf"), config).expect("a file");
    let mut command = Command::new("nginx");
    command.arg("-c").arg(folder.join("conf"));
    // as one nginx hands its sockets to the next: the variable has their descriptors
    command.env("NGINX", "0;1;");
    command.stdin(plain_socket).stdout(secure_socket);
    let _peer = start(command, folder.clone());
    for url in [
        format!("http://127.0.0.1:{plain}/"),
        format!("https://127.0.0.1:{secure}/"),
    ] {
        // it parts after each hundred requests, and may ignore requests that cross its GOAWAY
        let result = measured(&format!(
            "--http2 --streams 4 -t1 -c3 -d1s -R1000 -T30s {url}"
        ));
        let (completed, stale) = (
            count(&result, "/totals/completed"),
            count(&result, "/errors/stale"),
        );
        assert_eq!(completed + stale, 1000, "{}", result["errors"]);
        assert!(stale <= 4 * count(&result, "/totals/connects"));
        assert_eq!(count(&result, "/totals/status/200"), completed);
        assert_eq!(
            count(&result, "/errors/total"),
            stale,
            "{}",
            result["errors"]
        );
        assert!(count(&result, "/totals/connects") >= 10);
        let none = measured(&format!("--http2 -t1 -c1 -d300ms -R100 -T30s {url}none"));
        assert_eq!(count(&none, "/totals/status/404"), 30);
    }
    // the same server by HTTP/1.1 over TLS: nothing is negotiated
    let old = measured(&format!(
        "-t1 -c1 -d300ms -R100 -T30s https://127.0.0.1:{secure}/"
    ));
    assert_eq!(count(&old, "/totals/completed"), 30);
}

#[test]
fn node_is_understood_with_interim_answers_and_trailers() {
    if !is_installed("node") {
        return;
    }
    let (socket, port) = listening();
    let program = "const s = require('http2').createServer();\n\
         s.on('stream', (t, h) => { t.additionalHeaders({':status': 103, 'x-early': '1'});\n\
         t.respond({':status': 200, 'x-method': h[':method']}, {waitForTrailers: true});\n\
         t.on('wantTrailers', () => t.sendTrailers({'x-sum': '1'})); t.write('a'); t.end('bc'); });\n\
         s.listen({fd: 0});";
    let mut command = Command::new("node");
    command.arg("-e").arg(program);
    command.stdin(socket).stdout(Stdio::null());
    let _peer = start(command, folder());
    let file = temporary("lua");
    let text = "function response(status, headers, body)\n\
        assert(status == 200 and body == 'abc' and headers['x-sum'] == '1')\n\
        assert(headers['x-method'] == 'PUT' and not headers['x-early'])\nend\n";
    std::fs::write(&file, text).expect("a file");
    let line = format!(
        "--http2 --streams 5 -t1 -c2 -d1s -R200 -T30s -X PUT --body xyz -s {} http://127.0.0.1:{port}/",
        file.display()
    );
    let result = measured(&line);
    std::fs::remove_file(&file).expect("ours");
    assert_eq!(
        count(&result, "/totals/completed"),
        200,
        "{}",
        result["errors"]
    );
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
}

#[test]
fn a_server_learns_of_the_end_and_of_its_errors() {
    for (stray, options, code) in [
        (None, "-c2 -n 4", 0),
        (None, "-c2 -n 4 --requests-per-connection 1", 0),
        // a body on no stream, PROTOCOL_ERROR
        (Some((kind::DATA, 0)), "-c2 -n 2", 1),
        // a ping that is too short, FRAME_SIZE_ERROR
        (Some((kind::PING, 0)), "-c2 -n 2", 6),
    ] {
        let (sender, farewells) = channel();
        let server = Http2Server::start(&[], move |mut side, _| {
            while let Some(asked) = side.request() {
                match stray {
                    Some((kind, stream)) => side.send(kind, 0, stream, b"x"),
                    None => side.answer(asked.stream, "200", b"hello"),
                };
            }
            let _ = sender.send(side.farewells);
        });
        measured(&format!(
            "--http2 -t1 -d60s -T30s {options} {}",
            server.url()
        ));
        for _ in 0..2 {
            let codes = farewells.recv_timeout(Duration::from_secs(60));
            assert_eq!(codes.expect("a connection"), [code], "{options}");
        }
    }
}
