//! Requests that are lost (reset, closed, cut, refused, timed out) stand in the percentiles with the
//! time they were outstanding, as the server's own log has it.

mod support;

use serde_json::Value;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{always, count, measured, own_address, run, Conversation, Seen, Server, HELLO};

const PERIOD: Duration = Duration::from_millis(2000);
const STALL: Duration = Duration::from_millis(700);
const RATE: u64 = 100;
/// Of the 140 requests of two stalls; a busy machine brings many to the server once the stall is over.
const LOST_MIN: u64 = 40;
/// A reported time may be shorter than the truth by this besides 2 %.
const SHORTER_NS: f64 = 10e6;
/// What a machine with other work may add until the generator learns of an end.
const LONGER_NS: f64 = 300e6;

/// How a request ended: its number, the time since 1970, and whether it was answered.
type Log = Arc<Mutex<Vec<(u64, u64, bool)>>>;

/// Writes each request's number into its path: requests of several connections end in any order.
const NUMBERED: &str = "local number = 0
function request()
  number = number + 1
  return wrk.format(nil, '/' .. number)
end
";

fn number(seen: &Seen) -> u64 {
    seen.path()[1..].parse().expect("a number")
}

/// The report of four seconds with numbered requests.
fn measured_with_numbers(connections: usize, url: &str) -> Value {
    let script = support::temporary("lua");
    std::fs::write(&script, NUMBERED).expect("a script");
    let path = script.display();
    let line = format!("-t1 -c{connections} -d4s -R{RATE} -T30s -s {path} {url}");
    let result = measured(&line);
    std::fs::remove_file(&script).expect("ours");
    result
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after");
    since.as_nanos() as u64
}

/// How long the stall that `start + elapsed` lies in goes on, if it lies in one.
fn stall_left(start: Instant) -> Option<Duration> {
    let within = Duration::from_nanos((start.elapsed().as_nanos() % PERIOD.as_nanos()) as u64);
    (within >= PERIOD - STALL).then(|| PERIOD - within)
}

/// A server that stands still at the end of each period and then does `fault` to whoever waited.
fn stalling(fault: fn(&mut Conversation)) -> (Server, Log) {
    let (log, start) = (Log::default(), Instant::now());
    let own = Arc::clone(&log);
    let server = Server::start(move |mut conversation| {
        while let Some(seen) = conversation.request() {
            let Some(left) = stall_left(start) else {
                let ended = (number(&seen), now_ns(), true);
                own.lock().expect("no panic").push(ended);
                if conversation.send(HELLO) {
                    continue;
                }
                return;
            };
            std::thread::sleep(left);
            let ended = (number(&seen), now_ns(), false);
            own.lock().expect("no panic").push(ended);
            fault(&mut conversation);
            return;
        }
    });
    (server, log)
}

/// The users' waits, from when each request was due: of all of them, and of those with a response.
fn model(result: &Value, log: &Log) -> (Vec<u64>, Vec<u64>) {
    let start_ns = count(result, "/window/start_unix_ns");
    let log = log.lock().expect("no panic");
    let first = log.iter().map(|(number, ..)| *number).min().unwrap_or(0);
    let due_ns = |number: u64| start_ns + (number - first) * 1_000_000_000 / RATE;
    let age = |(number, ended_ns, answered): &(u64, u64, bool)| {
        (ended_ns.saturating_sub(due_ns(*number)), *answered)
    };
    let mut all: Vec<(u64, bool)> = log.iter().map(age).collect();
    all.sort_unstable();
    let answered = all.iter().filter(|(_, answered)| *answered);
    let answered = answered.map(|(age_ns, _)| *age_ns).collect();
    (all.iter().map(|(age_ns, _)| *age_ns).collect(), answered)
}

/// Whether a reported wait is shorter than the truth allows...
fn is_shorter(told_ns: f64, truth_ns: f64) -> bool {
    told_ns < 0.98 * truth_ns - SHORTER_NS
}

/// ...or longer than it, beyond the lateness that the generator itself reports.
fn is_longer(result: &Value, told_ns: f64, truth_ns: f64) -> bool {
    let late_ns = count(result, "/latency/lateness/max") as f64;
    told_ns > 1.02 * truth_ns + LONGER_NS + late_ns
}

/// Each percentile is that of the model, and percentiles that a lost request may raise are marked.
fn agrees(result: &Value, log: &Log) {
    let (all, answered) = model(result, log);
    let lost = all.len() - answered.len();
    let response = &result["latency"]["response"];
    assert_eq!(count(result, "/latency/response/count"), all.len() as u64);
    assert_eq!(count(result, "/totals/lost"), lost as u64);
    assert_eq!(response["lost"].as_u64(), Some(lost as u64));
    let marked = response["at_least"].as_array().expect("a list");
    for name in ["0.5", "0.75", "0.9"] {
        let quantile: f64 = name.parse().expect("a number");
        let rank = (quantile * all.len() as f64).ceil() as usize - 1;
        let found = response["quantiles"][name].as_f64().expect("known");
        let truth = all[rank] as f64;
        let is_near = !is_shorter(found, truth) && !is_longer(result, found, truth);
        assert!(is_near, "p{name}: reported {found}, true {truth}");
        // with the lost ones behind all others this rank would not be an answer's
        if rank >= answered.len() {
            assert!(marked.contains(&Value::from(name)), "p{name}: {marked:?}");
        }
    }
    assert_eq!(marked.contains(&Value::from("max")), lost > 0);
}

fn run_against(fault: fn(&mut Conversation)) -> Value {
    let (server, log) = stalling(fault);
    let url = server.url();
    let result = measured_with_numbers(90, &url);
    let lost = count(&result, "/totals/lost");
    assert!(lost >= LOST_MIN, "two stalls of 70 requests each: {lost}");
    agrees(&result, &log);
    result
}

#[test]
fn stalls_that_end_in_resets_stand_in_the_percentiles() {
    let result = run_against(|conversation| conversation.abort());
    assert!(count(&result, "/errors/read") >= LOST_MIN);
}

#[test]
fn stalls_that_end_in_a_close_stand_in_the_percentiles() {
    let result = run_against(|_| {});
    assert!(count(&result, "/errors/total") >= LOST_MIN);
}

#[test]
fn stalls_that_end_in_a_cut_body_stand_in_the_percentiles() {
    let result = run_against(|conversation| {
        conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel");
    });
    assert!(count(&result, "/errors/malformed/early_eof") >= LOST_MIN);
}

/// A server that is gone for the end of each period: it refuses, and its connections are reset.
fn vanishing(log: &Log) -> String {
    let listener = TcpListener::bind(own_address()).expect("a port");
    let address = listener.local_addr().expect("bound");
    let log = Arc::clone(log);
    std::thread::spawn(move || {
        // the test whether it is there must not fall into an outage, however late the command begins
        drop(listener.accept());
        let start = Instant::now();
        let mut listener = Some(listener);
        let mut open: Vec<TcpStream> = Vec::new();
        loop {
            if let Some(left) = stall_left(start) {
                drop(listener.take());
                open.drain(..).for_each(|stream| support::abort(&stream));
                std::thread::sleep(left);
                continue;
            }
            let listening = listener
                .get_or_insert_with(|| TcpListener::bind(address).expect("the same port again"));
            listening.set_nonblocking(true).expect("a socket");
            let Ok((stream, _)) = listening.accept() else {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            };
            stream.set_nonblocking(false).expect("a socket");
            open.push(stream.try_clone().expect("a descriptor"));
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                let mut conversation = Conversation::of(stream);
                while let Some(seen) = conversation.request() {
                    let ended = (number(&seen), now_ns(), true);
                    if !conversation.send(HELLO) {
                        return;
                    }
                    log.lock().expect("no panic").push(ended);
                }
            });
        }
    });
    format!("http://{address}/")
}

#[test]
fn requests_due_while_every_connection_is_dead_count_from_then_on() {
    let log = Log::default();
    let url = vanishing(&log);
    let result = measured_with_numbers(20, &url);
    assert!(count(&result, "/errors/connect/refused") > 0);
    assert_eq!(count(&result, "/latency/response/count"), 4 * RATE);
    // in the 1.4 s of both outages together a third of all fell due
    let (all, _) = model(&result, &log);
    // on a busy machine an outage also cuts off requests in flight, whose end the server does not log
    let cut_off = 4 * RATE as usize - all.len();
    let rank = 4 * RATE as usize * 9 / 10;
    let least = all[rank - cut_off] as f64;
    let most = all.get(rank).map_or(f64::INFINITY, |age| *age as f64);
    let found = result["latency"]["response"]["quantiles"]["0.9"].as_f64();
    let found = found.expect("known");
    assert!(found > 100e6, "{found}");
    assert!(!is_shorter(found, least), "{found} {least}");
    assert!(!is_longer(&result, found, most), "{found} {most}");
}

#[test]
fn each_request_of_a_lost_batch_is_counted() {
    let server = Server::start(|mut conversation| {
        // the first of four is answered, then the connection ends
        if conversation.request().is_some() && conversation.send(HELLO) {
            std::thread::sleep(Duration::from_millis(50));
            conversation.abort();
        }
    });
    let result = measured(&format!(
        "-t1 -c4 --depth 4 -d1s -R40 -T30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/completed"), 10, "{result}");
    assert_eq!(count(&result, "/totals/lost"), 30);
    assert_eq!(count(&result, "/errors/read"), 30);
    assert_eq!(count(&result, "/latency/response/count"), 40);
    assert_eq!(count(&result, "/latency/service/lost"), 30);
}

/// Whether the percentile of a report is marked as a lower bound.
fn is_marked(text: &str, percentile: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let line = lines.find(|line| line.starts_with(percentile));
    line.expect("the percentile").contains('≥')
}

#[test]
fn a_closed_loop_keeps_its_lost_requests_too() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            if conversation.number() % 2 == 1 {
                std::thread::sleep(Duration::from_millis(200));
                conversation.abort();
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
            if !conversation.send(HELLO) {
                return;
            }
        }
    });
    let output = run(&format!("-t1 -c8 -d2s -T30s --latency {}", server.url()));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(is_marked(&text, "99%"), "{text}");
    assert!(text.contains("Without a response: "), "{text}");
    let result = measured(&format!("-t1 -c8 -d2s -T30s {}", server.url()));
    let lost = count(&result, "/totals/lost");
    assert!(lost > 0);
    let known = count(&result, "/totals/completed") + lost;
    assert_eq!(count(&result, "/latency/service/count"), known);
    let sent = count(&result, "/totals/sent");
    assert_eq!(known + count(&result, "/totals/unfinished"), sent);
}

#[test]
fn one_lost_request_among_many_leaves_the_median_alone() {
    let server = Server::start(|mut conversation| {
        let mut answers = 0;
        while conversation.request().is_some() {
            answers += 1;
            if conversation.number() == 1 && answers == 50 {
                // longer than most, so that the median is the same however long it would have been
                std::thread::sleep(Duration::from_millis(200));
                conversation.abort();
                return;
            }
            if !conversation.send(HELLO) {
                return;
            }
        }
    });
    let line = format!("-t1 -c2 -n 4000 -d60s -T30s {}", server.url());
    let result = measured(&line);
    assert_eq!(count(&result, "/totals/lost"), 1, "{}", result["errors"]);
    let marked = result["latency"]["service"]["at_least"].to_string();
    assert!(!marked.contains("\"0.5\""), "{marked}");
    assert!(
        marked.contains("max") && marked.contains("mean"),
        "{marked}"
    );
}

#[test]
fn an_open_loop_marks_its_bounds_on_standard_output() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            if conversation.number() == 1 {
                std::thread::sleep(Duration::from_secs(600));
            }
            conversation.send(HELLO);
        }
    });
    let line = format!(
        "-t1 -c2 -d1s -R20 --drain 3s -T30s --dispatch any -L {}",
        server.url()
    );
    let text = String::from_utf8_lossy(&run(&line).stdout).into_owned();
    assert!(is_marked(&text, "100.000%"), "{text}");
    assert!(!is_marked(&text, "50.000%"), "{text}");
    assert!(text.contains("0 lost, 1 unfinished"), "{text}");
}

#[test]
fn a_connection_in_use_that_is_closed_unannounced_is_counted_apart() {
    let server = Server::start(|mut conversation| {
        for _ in 0..5 {
            if conversation.request().is_none() || !conversation.send(HELLO) {
                return;
            }
        }
        // it closes when the next request is on its way
        let _ = conversation.stream().peek(&mut [0]);
    });
    let line = format!("-t1 -c2 -n 3000 -d60s -T30s {}", server.url());
    let result = measured(&line);
    let stale = count(&result, "/errors/stale");
    assert!(stale > 0, "{}", result["errors"]);
    // a machine with other work may let any of them wait for longer than two ends of a connection take
    let read = count(&result, "/errors/read");
    assert_eq!(count(&result, "/totals/lost"), stale + read);
}

#[test]
fn a_first_request_that_is_cut_off_does_not_count_as_stale() {
    let server = Server::start(|mut conversation| {
        let answers = conversation.number() % 2 == 0;
        if conversation.request().is_some() && answers && conversation.send(HELLO) {
            always(HELLO)(conversation);
        }
    });
    let result = measured(&format!("-t1 -c2 -d500ms -R100 -T30s {}", server.url()));
    assert!(count(&result, "/errors/read") > 0);
    assert_eq!(count(&result, "/errors/stale"), 0);
}
