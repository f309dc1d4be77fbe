//! Which connection, URL and server each request goes to, and what that does to the percentiles of
//! a server of which one worker stands still.

#[path = "support/http2.rs"]
mod http2;
mod support;

use http2::Http2Server;
use load_engine::sys::clock::monotonic_ns;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use support::{always, count, measured, run, wait_until, Seen, Server, HELLO};

const MS: u64 = 1_000_000;
/// One of the two workers stops for so long …
const STALL_NS: u64 = 150 * MS;
/// … in each period.
const PERIOD_NS: u64 = 500 * MS;

/// A server of two workers, each with every other connection, of which the second stops now and
/// then. Connection 0 is the test whether the server is there.
fn two_workers() -> Server {
    let began_ns = monotonic_ns();
    Server::start(move |mut conversation| {
        let is_second = conversation.number() % 2 == 1;
        while conversation.request().is_some() {
            let into_ns = (monotonic_ns() - began_ns) % PERIOD_NS;
            if is_second && into_ns < STALL_NS {
                std::thread::sleep(Duration::from_nanos(STALL_NS - into_ns));
            }
            conversation.send(HELLO);
        }
    })
}

/// Four periods at a rate whose phases do not repeat, over four connections.
fn quantile_ms(dispatch: &str, quantile: &str) -> f64 {
    let server = two_workers();
    let result = measured(&format!(
        "-t1 -c4 -d2s -R 997.3 -T 30s {dispatch} {}",
        server.url()
    ));
    let path = format!("/latency/response/quantiles/{quantile}");
    count(&result, &path) as f64 / 1e6
}

/// Half of the connections belong to the worker that stops, so half of the requests that fall due in
/// a stall wait for its end: a wait of more than x has the share (S - x)/P/2.
fn expected_ms(quantile: f64) -> f64 {
    let waiting = (1.0 - quantile) * 2.0 * PERIOD_NS as f64;
    (STALL_NS as f64 - waiting) / 1e6
}

#[test]
fn requests_of_a_stopped_worker_wait_as_long_as_independent_users_do() {
    for dispatch in ["", "--dispatch pinned", "--dispatch random"] {
        let p99 = quantile_ms(dispatch, "0.99");
        let expected = expected_ms(0.99);
        assert!(p99 >= 0.95 * expected, "{dispatch}: {p99} of {expected}");
    }
}

#[test]
fn any_free_connection_hides_a_stopped_worker() {
    // The worker that stops stands still for three tenths of the time. Each of its two connections holds one
    // request then; what else falls due in a stall goes to the other worker, so that this one has not
    // half of all but little more than a third, wherever a busy machine's own stalls fall.
    let of_second = |dispatch: &str| {
        let server = two_workers();
        measured(&format!(
            "-t1 -c4 -d2s -R 997.3 -T 30s --dispatch {dispatch} {}",
            server.url()
        ));
        let seen = server.seen();
        let own = seen.iter().filter(|request| request.connection % 2 == 1);
        own.count() as f64 / seen.len() as f64
    };
    let (pinned, any) = (of_second("pinned"), of_second("any"));
    assert!((pinned - 0.5).abs() < 0.01, "{pinned}");
    assert!(
        any < 0.45,
        "{any}: requests wait for a worker that stands still"
    );
}

#[test]
fn streams_of_an_open_loop_are_taken_from_one_connection_after_the_other() {
    for dispatch in ["any", "pinned"] {
        let server = Http2Server::hello();
        // five URLs one after the other: what a connection is asked shows how many requests went elsewhere
        // meanwhile, whenever the server's threads get to read them
        let urls: Vec<_> = (0..5).map(|n| format!("{}{n}", server.url())).collect();
        measured(&format!(
            "--http2 --streams 200 -t1 -c4 -d1s -R200 -T30s --dispatch {dispatch} {}",
            urls.join(" ")
        ));
        let mut asked: HashMap<usize, Vec<u32>> = HashMap::new();
        for seen in server.seen() {
            let path = seen
                .fields
                .iter()
                .find_map(|own| own.strip_prefix(":path=/"));
            let url = path.expect("a path").parse().expect("a number");
            asked.entry(seen.connection).or_default().push(url);
        }
        assert_eq!(asked.len(), 4, "{dispatch}");
        for own in asked.values() {
            assert_eq!(own.len(), 50, "{dispatch}");
            let in_turn = |pair: &[u32]| pair[1] == (pair[0] + 4) % 5;
            assert!(own.windows(2).all(in_turn), "{dispatch}: {own:?}");
        }
    }
}

#[test]
fn urls_of_one_server_alternate_over_its_connections() {
    let server = Server::start(always(HELLO));
    let (one, other) = (format!("{}a", server.url()), format!("{}b", server.url()));
    for mode in ["-R100", "-R100 --dispatch any"] {
        let before = server.seen().len();
        measured(&format!("-t1 -c20 -d1s -T30s {mode} {one} {other}"));
        let seen = &server.seen()[before..];
        assert_eq!(seen.len(), 100);
        let is_one = |request: &&Seen| request.path() == "/a";
        // five rounds, each of which begins with the other URL where connections have their own requests: one that
        // is late when a round begins is asked in the wrong one
        let of_one = seen.iter().filter(is_one).count();
        assert!((48..=52).contains(&of_one), "{mode}: {of_one}");
        // the first twenty go to as many connections; in which order the server reads those is its own affair
        let mut known = HashSet::new();
        let firsts = seen
            .iter()
            .filter(|request| known.insert(request.connection));
        assert_eq!(firsts.filter(is_one).count(), 10, "{mode}");
    }
}

#[test]
fn connections_of_a_closed_loop_share_the_order_of_urls() {
    // one answer for each connection: what they ask first is all that they ask
    let server = Server::start(|mut conversation| {
        conversation.request();
        std::thread::sleep(Duration::from_secs(600));
    });
    let (one, other) = (format!("{}a", server.url()), format!("{}b", server.url()));
    measured(&format!("-t1 -c20 -d300ms -T30s {one} {other}"));
    // the server's threads read what was sent when they get a core
    wait_until(|| server.asked() >= 20);
    let seen = server.seen();
    let of_one = seen.iter().filter(|request| request.path() == "/a");
    assert_eq!((of_one.count(), seen.len()), (10, 20));
}

#[test]
fn each_connection_asks_for_each_url() {
    let server = Server::start(always(HELLO));
    let urls: Vec<_> = ["a", "b"].map(|path| server.url() + path).to_vec();
    measured(&format!("-t1 -c4 -d1s -R80 -T30s {}", urls.join(" ")));
    let mut counts: HashMap<(usize, String), usize> = HashMap::new();
    for seen in server.seen() {
        let key = (seen.connection, seen.path().to_string());
        *counts.entry(key).or_default() += 1;
    }
    assert_eq!(counts.len(), 8, "{counts:?}");
    // ten each; a request that has to wait for its connection swaps URLs with the next one, and after a stall of
    // the machine many have to
    let is_share = |&count: &usize| (3..=17).contains(&count);
    assert!(counts.values().all(is_share), "{counts:?}");
}

/// How often each server of a list with weights was asked.
fn asked(servers: &[Server], weights: &[u32], options: &str) -> (Vec<usize>, Value) {
    let list = support::temporary("urls");
    let lines = servers
        .iter()
        .zip(weights)
        .map(|(server, weight)| format!("{weight} {}\n", server.url()));
    std::fs::write(&list, lines.collect::<String>()).expect("a file");
    let result = measured(&format!("{options} -T30s --urls {}", list.display()));
    std::fs::remove_file(&list).expect("ours");
    // the server's threads read what was sent when they get a core
    wait_until(|| servers.iter().all(|server| server.asked() > 0));
    (servers.iter().map(Server::asked).collect(), result)
}

fn servers(number: usize) -> Vec<Server> {
    (0..number).map(|_| Server::start(always(HELLO))).collect()
}

#[test]
fn weights_act_across_servers() {
    let (counts, result) = asked(&servers(2), &[9, 1], "-t2 -c10 -d1s -R200");
    assert_eq!(counts, [180, 20]);
    assert_eq!(count(&result, "/totals/completed"), 200);
    // in closed loop the servers' connections have these weights
    let both = servers(2);
    let (_, result) = asked(&both, &[4, 1], "-t2 -c10 -d300ms");
    assert_eq!(count(&result, "/totals/connects"), 10);
    // one more each is the test whether the server is there
    let taken = |server: usize, count: usize| both[server].accepted_at_least(count + 1) - 1;
    assert_eq!([taken(0, 8), taken(1, 2)], [8, 2]);
}

#[test]
fn every_server_is_asked_or_the_run_is_refused() {
    for options in [
        "-t2 -c10 -d1s -R200",
        "-t2 -c5 -d300ms",
        "-t1 -c5 -d1s -R100",
    ] {
        let (counts, _) = asked(&servers(5), &[1; 5], options);
        assert!(
            counts.iter().all(|&count| count > 0),
            "{options}: {counts:?}"
        );
    }
    let five = servers(5);
    let urls: Vec<_> = five.iter().map(Server::url).collect();
    let table = [
        (
            "-t1 -c4",
            "--connections: 4 for 5 servers would leave some without any",
        ),
        (
            "-t2 -c9 -R10",
            "--connections: 9 on 2 threads leave a thread with fewer than the 5 servers",
        ),
        (
            "-c5 --dispatch any",
            "--dispatch: is for an open loop; give a rate (-R)",
        ),
        (
            "-c5 -R5 --dispatch x",
            "--dispatch: unknown value 'x' (pinned, any, random)",
        ),
    ];
    for (options, message) in table {
        let output = run(&format!("{options} -d1s {}", urls.join(" ")));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(message), "{errors}");
    }
}

#[test]
fn a_server_that_hangs_keeps_its_share_of_the_rate() {
    let healthy = Server::start(always(HELLO));
    let hangs = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            std::thread::sleep(Duration::from_secs(600));
        }
    });
    for dispatch in ["pinned", "any", "random"] {
        let before = healthy.asked();
        let result = measured(&format!(
            "-t1 -c4 -d1s -R100 -T30s --drain 4s --dispatch {dispatch} {} {}",
            healthy.url(),
            hangs.url()
        ));
        assert_eq!(healthy.asked() - before, 50, "{dispatch}");
        assert_eq!(count(&result, "/totals/completed"), 50, "{dispatch}");
        assert_eq!(count(&result, "/totals/unfinished"), 50, "{dispatch}");
        assert_eq!(count(&result, "/latency/response/count"), 100);
        let by_status = &result["breakdown"]["status"];
        assert_eq!(count(by_status, "/2xx/count"), 50, "{dispatch}");
        assert_eq!(count(by_status, "/lost/count"), 50, "{dispatch}");
    }
}

#[test]
fn a_connection_that_hangs_delays_what_is_pinned_to_it_alone() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            if conversation.number() == 1 {
                std::thread::sleep(Duration::from_secs(600));
            }
            conversation.send(HELLO);
        }
    });
    let result = measured(&format!(
        "-t1 -c4 -d1s -R 100 -T 30s --drain 4s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/due"), 100);
    assert_eq!(count(&result, "/totals/completed"), 75);
    assert_eq!(count(&result, "/totals/unfinished"), 25);
    assert_eq!(count(&result, "/totals/unsent"), 24);
    assert_eq!(count(&result, "/latency/response/count"), 100);
    assert_eq!(result["plan"]["dispatch"], "pinned");
    let mut by_connection: HashMap<usize, usize> = HashMap::new();
    for seen in server.seen() {
        *by_connection.entry(seen.connection).or_default() += 1;
    }
    assert_eq!(by_connection.get(&2), Some(&25));
}

#[test]
fn a_ramp_that_takes_connections_away_loses_no_request() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            std::thread::sleep(Duration::from_millis(20));
            conversation.send(HELLO);
        }
    });
    let result = measured(&format!(
        "-t1 -c4..1:3 --step 500ms -R 100 -T 30s --drain 30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/due"), 100);
    assert_eq!(count(&result, "/totals/completed"), 100);
    assert_eq!(server.asked(), 100);
}
