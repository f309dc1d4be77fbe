//! Closed loop, open loop, ramps, probe: what is sent when, and whether the figures agree with it.

mod support;

use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use support::{always, count, measured, run, slow, wait_until, Server, HELLO};

#[test]
fn a_closed_loop_counts_what_the_server_counts() {
    let server = Server::start(always(HELLO));
    let result = measured(&format!("-t2 -c5 -d1s -T 30s {}", server.url()));
    // the server's threads read what was sent when they get a core
    wait_until(|| server.connections() == 5);
    let seen = server.seen();
    let sent = count(&result, "/totals/sent");
    // the last ones in flight may not have been read by the server when it was asked
    assert!(sent >= seen.len() as u64 && sent - seen.len() as u64 <= 5);
    assert_eq!(
        count(&result, "/totals/completed") + count(&result, "/totals/unfinished"),
        sent
    );
    assert_eq!(count(&result, "/errors/total"), 0);
    assert_eq!(count(&result, "/totals/connects"), 5);
    assert_eq!(server.connections(), 5, "each connection is used");
    let completed = count(&result, "/totals/completed");
    assert_eq!(count(&result, "/latency/service/count"), completed);
    assert_eq!(count(&result, "/totals/status/200"), completed);
    assert!(result["latency"]["response"].is_null());
}

#[test]
fn an_open_loop_sends_exactly_what_is_due() {
    let server = Server::start(always(HELLO));
    let result = measured(&format!("-t2 -c8 -d1s -R 200 -T 30s {}", server.url()));
    assert_eq!(count(&result, "/totals/due"), 200);
    assert_eq!(count(&result, "/totals/sent"), 200);
    assert_eq!(count(&result, "/totals/completed"), 200);
    assert_eq!(count(&result, "/latency/response/count"), 200);
    assert_eq!(server.seen().len(), 200);
}

#[test]
fn warm_up_is_sent_and_not_counted() {
    let server = Server::start(always(HELLO));
    let result = measured(&format!(
        "-t1 -c4 -d500ms --warmup 500ms -R 100 -T 30s {}",
        server.url()
    ));
    assert_eq!(server.seen().len(), 100);
    assert_eq!(count(&result, "/totals/due"), 50);
    assert_eq!(count(&result, "/totals/sent"), 50);
    assert_eq!(count(&result, "/latency/response/count"), 50);
}

#[test]
fn what_is_due_in_the_window_waits_for_what_the_warm_up_left_unsent() {
    // 20 requests per second can be answered and 40 are due: request k is due after k * 25 ms and
    // answered after (k + 1) * 50 ms at the earliest, and the window begins with k = 40
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            std::thread::sleep(Duration::from_millis(50));
            conversation.send(HELLO);
        }
    });
    let result = measured(&format!(
        "-t1 -c1 -d1s --warmup 1s -R 40 -T 30s --drain 30s {}",
        server.url()
    ));
    assert_eq!(server.seen().len(), 80);
    assert_eq!(count(&result, "/totals/due"), 40);
    assert_eq!(count(&result, "/totals/sent"), 40);
    assert_eq!(count(&result, "/latency/response/count"), 40);
    let least_ns = count(&result, "/latency/response/min");
    assert!(least_ns >= 1_000_000_000, "{least_ns}");
}

#[test]
fn requests_that_the_warm_up_never_sent_are_not_unfinished() {
    // the one answer never comes: of 40 due in the window none is sent, and of the 40 before it one
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            if conversation.number() > 0 {
                std::thread::sleep(Duration::from_secs(600));
            }
            conversation.send(HELLO);
        }
    });
    let result = measured(&format!(
        "-t1 -c1 -d1s --warmup 1s -R 40 -T 30s --drain 100ms {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/due"), 40);
    assert_eq!(count(&result, "/totals/sent"), 0);
    assert_eq!(count(&result, "/latency/response/count"), 40);
}

#[test]
fn a_connection_that_hangs_delays_no_other_request() {
    let server = Server::start(|mut conversation| {
        // connection 0 is the test whether the server is there
        while conversation.request().is_some() {
            if conversation.number() == 1 {
                std::thread::sleep(Duration::from_secs(600));
            }
            conversation.send(HELLO);
        }
    });
    let result = measured(&format!(
        "-t1 -c4 -d1s -R 100 -T 30s --drain 5s --dispatch any {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/sent"), 100);
    assert_eq!(count(&result, "/totals/completed"), 99);
    assert_eq!(count(&result, "/totals/unfinished"), 1);
    // the one without an answer is in the distribution, with its age
    assert_eq!(count(&result, "/latency/response/count"), 100);
    assert_eq!(count(&result, "/latency/censored/count"), 1);
    assert!(count(&result, "/latency/response/max") > 1_000_000_000);
}

#[test]
fn a_rate_above_capacity_is_said_and_its_backlog_counted() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            std::thread::sleep(Duration::from_millis(50));
            conversation.send(HELLO);
        }
    });
    let result = measured(&format!(
        "-t1 -c2 -d1s -R 1000 --drain 100ms {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/due"), 1000);
    assert_eq!(
        count(&result, "/latency/response/count"),
        1000,
        "no user vanishes"
    );
    let warnings = result["warnings"].to_string();
    assert!(
        warnings.contains("schedule-missed") && warnings.contains("backlog"),
        "{warnings}"
    );
    let dropped = measured(&format!(
        "-t1 -c2 -d1s -R 1000 --late drop {}",
        server.url()
    ));
    let sum = count(&dropped, "/totals/dropped") + count(&dropped, "/totals/sent");
    assert_eq!((sum, count(&dropped, "/totals/due")), (1000, 1000));
    assert!(count(&dropped, "/totals/dropped") > 800);
}

#[test]
fn ramps_send_the_area_under_them_and_report_their_steps() {
    let server = Server::start(always(HELLO));
    let linear = measured(&format!("-t1 -c4 -d1s -R 0..200 -T 30s {}", server.url()));
    assert_eq!(count(&linear, "/totals/sent"), 100);
    let steps = measured(&format!(
        "-t1 -c4 -d2s -R 50..150:100 -T 30s {}",
        server.url()
    ));
    assert_eq!(count(&steps, "/totals/sent"), 200);
    assert_eq!(steps["steps"].as_array().map(Vec::len), Some(2));
    let connections = measured(&format!("-t1 -c1..3:1 --step 2s -T 30s {}", server.url()));
    let steps = connections["steps"].as_array().expect("steps");
    let counts: Vec<_> = steps
        .iter()
        .map(|step| step["connections"].as_u64())
        .collect();
    assert_eq!(counts, [Some(1), Some(2), Some(3)]);
    assert_eq!(
        count(&connections, "/totals/connects"),
        3,
        "old ones are kept"
    );
}

#[test]
fn poisson_arrivals_follow_their_seed() {
    let server = Server::start(always(HELLO));
    let line = format!(
        "-t1 -c4 -d500ms -R 200 -T 30s --arrival poisson --seed 9 {}",
        server.url()
    );
    let (first, second) = (measured(&line), measured(&line));
    assert_eq!(
        count(&first, "/totals/sent"),
        count(&second, "/totals/sent")
    );
    assert_eq!(first["plan"]["arrival"], "poisson");
    assert_eq!(count(&first, "/plan/seed"), 9);
}

#[test]
fn the_probe_ends_with_a_number_of_requests() {
    let server = Server::start(always(HELLO));
    let line = format!("-t2 -c4 -n 400 --probe 100 -d60s -T30s {}", server.url());
    let began = Instant::now();
    let result = measured(&line);
    assert!(began.elapsed().as_secs() < 50);
    assert_eq!(count(&result, "/totals/completed"), 400);
    assert!(count(&result, "/window/length_ns") < 50_000_000_000);
}

#[test]
fn the_probe_waits_for_its_responses_after_a_number_of_requests() {
    let server = slow(Duration::from_millis(400));
    let line = format!("-t1 -c4 -n 4 --probe 20 -d60s -T30s {}", server.url());
    let result = measured(&line);
    let probe = &result["latency"]["probe"];
    for times in ["service", "response"] {
        assert_eq!(probe[times]["lost"], 0, "{times}");
        assert_eq!(probe[times]["count"], probe["completed"], "{times}");
    }
    let completed = count(&result, "/latency/probe/completed");
    assert!(completed > 0);
    assert_eq!(server.asked() as u64, 4 + completed);
}

#[test]
fn the_probe_is_reported_apart() {
    let server = Server::start(always(HELLO));
    let result = measured(&format!(
        "-t1 -c2 -d1s --probe 100 -T 30s -H X-A:1 {}",
        server.url()
    ));
    let probe = count(&result, "/latency/probe/completed");
    assert!(probe > 0 && probe < 200, "{probe}");
    let total = count(&result, "/totals/completed") + probe;
    assert!(server.seen().len() as u64 >= total);
}

#[test]
fn pipelined_requests_go_together_and_come_back_in_order() {
    let server = Server::start(always(HELLO));
    let result = measured(&format!(
        "-t1 -c2 -n 400 -d60s -T 30s --depth 4 {}",
        server.url()
    ));
    let (sent, completed) = (
        count(&result, "/totals/sent"),
        count(&result, "/totals/completed"),
    );
    assert_eq!((sent, completed), (400, 400));
    assert_eq!(count(&result, "/errors/total"), 0);
}

#[test]
fn urls_are_asked_by_weight_and_servers_in_turn() {
    let (one, two) = (Server::start(always(HELLO)), Server::start(always(HELLO)));
    let list = support::temporary("urls");
    std::fs::write(
        &list,
        format!("3 {}a\n1 {}b\n{}c\n", one.url(), one.url(), two.url()),
    )
    .expect("a file");
    measured(&format!(
        "-t1 -c2 -d500ms -R 200 -T 30s --urls {}",
        list.display()
    ));
    std::fs::remove_file(&list).expect("ours");
    let mut paths: HashMap<String, i64> = HashMap::new();
    for seen in one.seen() {
        *paths.entry(seen.path().to_string()).or_default() += 1;
    }
    assert!((paths["/a"] - 3 * paths["/b"]).abs() <= 3, "{paths:?}");
    assert!(two.seen().iter().all(|seen| seen.path() == "/c") && !two.seen().is_empty());
}

#[test]
fn bodies_methods_and_fields_arrive() {
    let server = Server::start(always(HELLO));
    measured(&format!(
        "-t1 -c1 -d500ms -R 20 -T 30s --body abc -H Accept:x -X PUT {}",
        server.url()
    ));
    let seen = server.seen().first().cloned().expect("a request");
    assert_eq!(seen.line, "PUT / HTTP/1.1");
    assert_eq!(seen.body, b"abc");
    assert!(seen.headers.contains(&"Accept: x".to_string()));
}

#[test]
fn threads_begin_at_different_sources() {
    let server = Server::start(always(HELLO));
    let line = format!(
        "-t2 -c2 -d500ms -R 100 -T 30s --source 127.0.0.2,127.0.0.3 {}",
        server.url()
    );
    measured(&line);
    let seen = server.seen();
    let addresses = seen.iter().filter_map(|s| s.source).map(|s| s.ip());
    assert_eq!(addresses.collect::<HashSet<_>>().len(), 2);
}

#[test]
fn sources_are_used_in_turn() {
    let server = Server::start(always(HELLO));
    measured(&format!(
        "-t1 -c4 -d500ms -R 100 -T 30s --source 127.0.0.2,127.0.0.3 {}",
        server.url()
    ));
    let sources: HashSet<String> = server
        .seen()
        .iter()
        .filter_map(|s| s.source)
        .map(|s| s.ip().to_string())
        .collect();
    assert_eq!(
        sources,
        HashSet::from(["127.0.0.2".to_string(), "127.0.0.3".to_string()])
    );
}

#[test]
fn ipv6_and_unix_sockets_are_reached() {
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        let server = Server::start_on("[::1]:0", always(HELLO));
        let result = measured(&format!("-t1 -c2 -d500ms -R 20 -T 30s {}", server.url()));
        assert_eq!(count(&result, "/totals/completed"), 10);
    }
    let path = support::temporary("sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                use std::io::{Read, Write};
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).is_ok_and(|n| n > 0) && stream.write(HELLO).is_ok() {
                }
            });
        }
    });
    let result = measured(&format!(
        "-t1 -c2 -d500ms -R 20 -T 30s unix://{}:/x",
        path.display()
    ));
    assert_eq!(count(&result, "/totals/completed"), 10);
    std::fs::remove_file(&path).expect("ours");
}

#[test]
fn the_sink_answers_everything() {
    let result = measured("-t1 -c4 -n 1000 -d60s -T 30s --sink");
    assert!(count(&result, "/totals/completed") > 0);
    assert_eq!(count(&result, "/errors/total"), 0);
    let result = measured("-t1 -c4 -d500ms -R 100 -T 30s --sink -H Connection:close");
    assert!(count(&result, "/totals/connects") > 4);
    assert_eq!(count(&result, "/errors/total"), 0);
}

#[test]
fn both_kinds_of_readiness_and_all_waits_work() {
    let server = Server::start(always(HELLO));
    for options in [
        "--epoll level -n 100 -d60s",
        "--wait spin -R 100 -d1s",
        "--wait sleep -R 100 -d1s",
        "--abort -n 100 -d60s",
    ] {
        let result = measured(&format!("-t1 -c2 -T 30s {options} {}", server.url()));
        assert_eq!(count(&result, "/totals/completed"), 100, "{options}");
        assert_eq!(count(&result, "/errors/total"), 0, "{options}");
    }
}

#[test]
fn strict_runs_fail_when_there_are_warnings() {
    let server = Server::start(always(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"));
    let output = run(&format!(
        "-t1 -c2 -d500ms -R 20 -T 30s --strict {}",
        server.url()
    ));
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("a status other than 2xx"), "{text}");
}

/// Requests of the window, and what became of them.
fn accounts(result: &Value) -> (u64, u64) {
    let ends = ["completed", "lost", "dropped", "unfinished"];
    let known = ends.map(|name| count(result, &format!("/totals/{name}")));
    (count(result, "/totals/due"), known.iter().sum())
}

#[test]
fn the_backlog_of_an_overloaded_warm_up_is_none_of_the_windows_requests() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            std::thread::sleep(Duration::from_millis(10));
            if !conversation.send(HELLO) {
                return;
            }
        }
    });
    // of 120 due in the warm-up a hundred a second are answered: the rest in the window, which is longer than any
    // time for which a busy machine stands still
    let options = "-t1 -c1 --warmup 300ms -d 3s --drain 50ms -T30s";
    let result = measured(&format!("{options} -R 400 {}", server.url()));
    let (due, known) = accounts(&result);
    assert_eq!(due, known, "{}", result["totals"]);
    // it is sent first, and its answers are what the server reached
    assert!(
        count(&result, "/totals/earlier") > 0,
        "{}",
        result["totals"]
    );
    assert!(count(&result, "/totals/completed_in_window") > 0);
    let statuses = result["totals"]["status"].as_object().expect("a table");
    let answers: u64 = statuses.values().filter_map(Value::as_u64).sum();
    assert_eq!(answers, count(&result, "/totals/completed"));
}
