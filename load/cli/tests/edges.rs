//! Runs at the edges: no response, only errors, less than one request, an interrupt at any time. Every figure
//! stays a number, and all of them agree.

#[path = "support/schema.rs"]
mod schema;
mod support;

use schema::{compare, schema};
use serde_json::Value;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::{always, count, program, slow, temporary, wait_until, Server, HELLO};

/// Reads requests and answers none.
fn mute() -> Server {
    Server::start(|mut conversation| while conversation.request().is_some() {})
}

/// What a command printed, and its result file, which is as its schema says and whose figures agree.
struct Run {
    text: String,
    result: Value,
}

/// Runs the command; `interrupt_when` says when Ctrl-C is to come, if at all.
fn run_until(line: &str, interrupt_when: Option<&dyn Fn() -> bool>) -> Run {
    let file = temporary("json");
    let mut child = program()
        .args(["--json".as_ref(), file.as_os_str()])
        .args(line.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    if let Some(is_time) = interrupt_when {
        wait_until(is_time);
        let pid = child.id().to_string();
        let killed = Command::new("kill").args(["-INT", &pid]).status();
        assert!(killed.expect("kill").success());
        let mut has_ended = false;
        for _ in 0..3000 {
            has_ended = child.try_wait().expect("a child").is_some();
            if has_ended {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if !has_ended {
            child.kill().expect("it runs");
        }
        assert!(has_ended, "{line}: it goes on after the interrupt");
    }
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let written =
        std::fs::read_to_string(&file).unwrap_or_else(|_| panic!("{line}: no file: {text}"));
    std::fs::remove_file(&file).expect("ours");
    let result: Value = serde_json::from_str(&written).expect("JSON");
    let schema = schema();
    compare(&result, &schema, &schema, "");
    check(&result);
    assert!(text.contains("\nRequests/sec: "), "{line}: {text}");
    Run { text, result }
}

fn run_whole(line: &str) -> Run {
    run_until(line, None)
}

/// Figures of a result that are the same thing counted twice.
fn check(result: &Value) {
    let list = |path: &str| result[path].as_array().expect("a list").clone();
    let sum = |of: &[Value]| -> u64 { of.iter().map(|one| count(one, "/completed")).sum() };
    let in_window = count(result, "/totals/completed_in_window");
    assert_eq!(sum(&list("seconds")), in_window, "{result}");
    assert_eq!(sum(&list("threads")), in_window, "{result}");
    let statuses = result["totals"]["status"].as_object().expect("by status");
    let answered: u64 = statuses.values().filter_map(Value::as_u64).sum();
    assert_eq!(answered, count(result, "/totals/completed"), "{result}");
    let seconds = count(result, "/window/length_ns").max(1) as f64 / 1e9;
    let rps = result["rps"].as_f64().expect("a number");
    assert!((rps * seconds - in_window as f64).abs() < 1e-6 * (1.0 + in_window as f64));
    assert!(count(result, "/totals/sent") >= count(result, "/totals/completed"));
    for (name, latency) in result["latency"].as_object().expect("latencies") {
        let Some(quantiles) = latency["quantiles"].as_object() else {
            continue;
        };
        let (min, max) = (count(latency, "/min"), count(latency, "/max"));
        assert!(
            min <= max && count(latency, "/count") > 0,
            "{name}: {latency}"
        );
        let known: Vec<u64> = quantiles.values().filter_map(Value::as_u64).collect();
        let is_ordered = known.windows(2).all(|pair| pair[0] <= pair[1]);
        assert!(
            is_ordered && known.iter().all(|value| *value <= max),
            "{name}: {latency}"
        );
    }
}

#[test]
fn a_window_shorter_than_a_request_has_no_response() {
    let server = slow(Duration::from_secs(2));
    let run = run_whole(&format!("-t1 -c2 -d50ms -T30s --latency {}", server.url()));
    assert_eq!(count(&run.result, "/totals/completed"), 0);
    assert_eq!(run.result["latency"]["service"], Value::Null);
    assert!(run.text.contains("  0 requests in "), "{}", run.text);
    assert!(run.text.contains("Requests/sec:      0.00"), "{}", run.text);
}

#[test]
fn a_response_after_a_short_window_counts_and_is_in_no_rate() {
    let server = slow(Duration::from_secs(2));
    let run = run_whole(&format!("-t1 -c2 -d50ms -R 20 -T30s {}", server.url()));
    assert_eq!(count(&run.result, "/totals/due"), 1);
    assert_eq!(count(&run.result, "/totals/completed"), 1);
    assert_eq!(count(&run.result, "/totals/completed_in_window"), 0);
    assert!(count(&run.result, "/latency/response/min") >= 2_000_000_000);
    assert!(run.text.contains("  0 requests in "), "{}", run.text);
}

#[test]
fn a_run_of_errors_alone_has_bounds_alone() {
    let server = Server::start(|mut conversation| drop(conversation.request()));
    for rate in ["", "-R 100"] {
        let run = run_whole(&format!(
            "-t1 -c2 -n 20 -d60s -T30s {rate} --latency {}",
            server.url()
        ));
        assert_eq!(count(&run.result, "/totals/completed"), 0);
        assert_eq!(
            count(&run.result, "/totals/lost"),
            20,
            "{}",
            run.result["totals"]
        );
        assert_eq!(
            count(&run.result, "/errors/read"),
            20,
            "{}",
            run.result["errors"]
        );
        let name = if rate.is_empty() {
            "service"
        } else {
            "response"
        };
        let latency = &run.result["latency"][name];
        assert_eq!(count(latency, "/lost"), 20, "{latency}");
        let bounds = latency["at_least"].as_array().expect("names");
        assert!(
            bounds.contains(&"0.5".into()) && bounds.contains(&"max".into()),
            "{latency}"
        );
        for line in [
            "  0 requests in ",
            "Socket errors: connect 0, read 20,",
            "20 lost",
            "≥",
        ] {
            assert!(run.text.contains(line), "{line}: {}", run.text);
        }
    }
}

#[test]
fn a_rate_may_be_a_fraction() {
    let server = Server::start(always(HELLO));
    for (rate, due) in [("0.5", 1), ("12.5", 13), ("0.001", 1)] {
        let run = run_whole(&format!("-t1 -c2 -d1s -R {rate} -T30s {}", server.url()));
        assert_eq!(count(&run.result, "/totals/due"), due, "{rate}");
        assert_eq!(count(&run.result, "/totals/completed"), due, "{rate}");
        let planned = run.result["plan"]["rate_rps"].as_f64();
        assert_eq!(planned, rate.parse().ok(), "{rate}");
    }
}

#[test]
fn a_rate_and_a_timeout_beyond_all_need_overflow_nothing() {
    let server = Server::start(always(HELLO));
    // a timeout of decades is how some say never
    let options = "-t1 -c1 -d2s -R 1P -T 1000000000 --drain 100ms";
    let run = run_whole(&format!("{options} {}", server.url()));
    assert_eq!(count(&run.result, "/totals/due"), 2_000_000_000_000_000);
}

#[test]
fn connections_that_the_rate_does_not_need_are_open_and_draw_no_warning() {
    let server = Server::start(always(HELLO));
    let run = run_whole(&format!("-t2 -c40 -d1s -R 10 -T30s {}", server.url()));
    assert_eq!(count(&run.result, "/totals/due"), 10);
    assert_eq!(count(&run.result, "/totals/completed"), 10);
    assert_eq!(count(&run.result, "/totals/connects"), 40);
    let warnings = run.result["warnings"].as_array().expect("a list");
    let is_of_connections = |one: &Value| one["id"] == "connections" || one["id"] == "setup";
    assert!(!warnings.iter().any(is_of_connections), "{warnings:?}");
}

#[test]
fn an_interrupt_ends_a_run_in_each_of_its_phases() {
    let (server, silent) = (Server::start(always(HELLO)), mute());
    let (address, url) = (silent.address, server.url());
    // handshakes that nothing answers; one connection is the test whether the server is there
    let line = format!("-t1 -c3 -d600s --connect-timeout 600s https://{address}/");
    let run = run_until(&line, Some(&|| silent.accepted() >= 4));
    assert_eq!(count(&run.result, "/totals/sent"), 0);
    // in the warm-up
    let line = format!("-t1 -c2 -R 100 --warmup 600s -d600s {url}");
    let run = run_until(&line, Some(&|| server.asked() >= 5));
    assert_eq!(
        count(&run.result, "/totals/completed"),
        0,
        "{}",
        run.result["totals"]
    );
    assert!(count(&run.result, "/totals/warmup_completed") > 0);
    // in the window of either loop, with the probe and a ramp
    for options in [
        "-d600s",
        "-R 100 --probe 20 -d600s",
        "-R 100..500:100 -d600s",
        "-n 1000000 --think 1ms",
    ] {
        let before = server.asked();
        let line = format!("-t2 -c4 {options} {url}");
        let run = run_until(&line, Some(&|| server.asked() >= before + 30));
        assert!(count(&run.result, "/totals/completed") > 0, "{options}");
        assert!(
            count(&run.result, "/window/length_ns") < 600_000_000_000,
            "{options}"
        );
    }
    // while requests that were due in the window are awaited
    let before = silent.asked();
    let line = format!("-t1 -c2 -R 20 -d50ms -T600s http://{address}/");
    let run = run_until(&line, Some(&|| silent.asked() > before));
    assert_eq!(count(&run.result, "/totals/due"), 1);
    assert_eq!(
        count(&run.result, "/totals/unfinished"),
        1,
        "{}",
        run.result["totals"]
    );
    // while users think
    let before = server.accepted();
    let line = format!("-t1 -c2 --think 600s -d600s {url}");
    let run = run_until(&line, Some(&|| server.accepted() >= before + 3));
    assert_eq!(count(&run.result, "/totals/sent"), 0);
}
