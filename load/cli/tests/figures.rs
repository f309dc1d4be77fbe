//! Figures that agree with what happened: delays of this program, batches, warm-ups, dropped
//! requests, results that belong together.

mod support;

use serde_json::Value;
use std::cell::RefCell;
use std::process::Stdio;
use std::time::Duration;
use support::{always, count, measured, program, run, slow, temporary, wait_until, Server, HELLO};

const CHUNKED: &[u8] =
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";

#[test]
fn the_delay_of_this_program_is_sampled_whatever_the_answers_are() {
    let server = Server::start(always(CHUNKED));
    let result = measured(&format!("-t1 -c4 -n 500 -d60s -T30s {}", server.url()));
    assert_eq!(count(&result, "/totals/completed"), 500);
    assert!(count(&result, "/latency/client_delay/count") > 0);
}

#[test]
fn a_closed_loop_records_batches_as_wrk_does() {
    let server = Server::start(always(HELLO));
    let result = measured(&format!(
        "-t1 -c2 --depth 4 -n 400 -d60s -T30s {}",
        server.url()
    ));
    let completed = count(&result, "/totals/completed");
    let batches = count(&result, "/latency/service/count");
    assert_eq!((completed, batches), (400, 100));
    let open = measured(&format!(
        "-t1 -c2 --depth 4 -R80 -d1s -T30s {}",
        server.url()
    ));
    assert_eq!(count(&open, "/latency/response/count"), 80);
}

#[test]
fn a_batch_that_counts_once_counts_once_when_it_is_lost_too() {
    let server = Server::start(|mut conversation| while conversation.request().is_some() {});
    let result = measured(&format!(
        "-t1 -c1 --depth 4 -B -R80 -d1s -T30s --drain 100ms {}",
        server.url()
    ));
    // one batch in flight, 19 that wait for the connection
    assert_eq!(count(&result, "/totals/unfinished"), 80);
    assert_eq!(count(&result, "/latency/response/count"), 20);
    assert_eq!(count(&result, "/latency/service/count"), 1);
}

#[test]
fn a_line_end_too_many_behind_a_body_is_tolerated() {
    let stray = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\r\n".as_bytes();
    let server = Server::start(always(stray));
    for options in ["-R100 -d500ms", "--depth 3 -n 150 -d60s"] {
        let result = measured(&format!("-t1 -c2 -T30s {options} {}", server.url()));
        assert_eq!(count(&result, "/errors/total"), 0, "{}", result["notes"]);
        assert!(count(&result, "/totals/tolerated") > 0);
        assert!(count(&result, "/totals/completed") >= 50);
    }
}

#[test]
fn connections_of_the_warm_up_are_counted_among_all() {
    let server = Server::start(|mut conversation| {
        conversation.request();
        conversation.send(HELLO);
    });
    let result = measured(&format!(
        "-t1 -c1 -R20 --warmup 1s -d500ms -T30s -H Connection:close {}",
        server.url()
    ));
    let connects = count(&result, "/totals/connects") as usize;
    assert!(connects >= 30, "one for each request: {connects}");
    // one is the test whether the server is there; where the last answer comes after the window, the connection
    // that is opened behind it is under way as the run ends, and not counted
    let accepted = server.accepted_at_least(connects + 1);
    assert!(
        (connects + 1..=connects + 2).contains(&accepted),
        "{connects} {accepted}"
    );
}

#[test]
fn a_ramp_from_zero_behind_a_warm_up_loses_no_request() {
    let server = Server::start(always(HELLO));
    let result = measured(&format!(
        "-t1 -c2 -R0..100 --warmup 300ms -d1s -T30s {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/due"), 50);
    assert_eq!(
        (server.asked(), count(&result, "/totals/completed")),
        (50, 50)
    );
}

#[test]
fn percentiles_that_dropped_requests_may_raise_are_bounds() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            std::thread::sleep(std::time::Duration::from_millis(50));
            conversation.send(HELLO);
        }
    });
    let line = format!("-t1 -c2 -d1s -R200 --late drop -T30s {}", server.url());
    let result = measured(&line);
    let dropped = count(&result, "/totals/dropped");
    assert!(dropped > 100, "{dropped}");
    assert_eq!(count(&result, "/latency/response/dropped"), dropped);
    let bounds = result["latency"]["response"]["at_least"].to_string();
    assert!(
        bounds.contains("\"0.5\"") && bounds.contains("max"),
        "{bounds}"
    );
    let text = String::from_utf8_lossy(&run(&line).stdout).into_owned();
    assert!(text.contains(" dropped; ≥ marks"), "{text}");
}

#[test]
fn requests_that_were_too_late_to_be_sent_are_counted() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            std::thread::sleep(std::time::Duration::from_millis(100));
            conversation.send(HELLO);
        }
    });
    let line = format!("-t1 -c1 -d1s -R100 --deadline 50ms -T30s {}", server.url());
    let text = String::from_utf8_lossy(&run(&line).stdout).into_owned();
    let before = "  Without a response: 0 lost, 0 unfinished, ";
    let rest = text.split_once(before).expect("a line about them").1;
    let (shed, rest) = rest.split_once(' ').expect("a number");
    assert!(shed.parse::<u64>().expect("a number") > 50, "{text}");
    assert!(rest.starts_with("too late to be sent; ≥ marks"), "{text}");
}

#[test]
fn a_rate_that_is_dropped_all_but_whole_ends_in_time() {
    let server = Server::start(always(HELLO));
    let child = program()
        .args(["-t1", "-c1", "-d200ms", "-R1T", "--late", "drop"])
        .args(["--drain", "100ms", "-T30s", &server.url()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let child = RefCell::new(child);
    let status = || child.borrow_mut().try_wait().expect("a child");
    wait_until(|| status().is_some());
    let status = status();
    // it has not ended if this has an effect
    let _ = child.borrow_mut().kill();
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}

#[test]
fn the_page_for_prometheus_ends_with_the_counts_of_the_run() {
    let server = slow(Duration::from_millis(400));
    let page = temporary("prom");
    let place = page.display();
    let line = format!(
        "-t1 -c4 -R10 -d400ms -T30s --prometheus {place} {}",
        server.url()
    );
    assert_eq!(count(&measured(&line), "/totals/completed"), 4);
    let text = std::fs::read_to_string(&page).expect("written");
    std::fs::remove_file(&page).expect("ours");
    // most of them came behind the last second of the window
    for name in ["requests_total", "connects_total", "latency_seconds_count"] {
        let row = format!("wirespeed_load_{name} 4");
        assert!(text.lines().any(|line| line == row), "{row} in\n{text}");
    }
}

#[test]
fn results_of_other_requests_are_not_merged() {
    let (server, other) = (Server::start(always(HELLO)), Server::start(always(HELLO)));
    let of = |options: &str, url: String| -> Value {
        measured(&format!("-t1 -c1 -d200ms -T30s {options} {url}"))
    };
    let scripts = ["wrk.path = '/a'", "wrk.path = '/b'"].map(|text| {
        let file = temporary("lua");
        std::fs::write(&file, text).expect("a file");
        file
    });
    let [one, two] = scripts
        .each_ref()
        .map(|file| format!("-s {}", file.display()));
    let first = of("", server.url());
    let scripted = of(&one, server.url());
    let differ = |first: &Value, other: Value, key: &'static str| (first.clone(), other, key);
    let each = of("--depth 2 -R 20", server.url());
    let pairs = [
        differ(&each, of("--depth 2 -R 20 -B", server.url()), "settings"),
        differ(&first, of(&one, server.url()), "requests"),
        differ(&scripted, of(&two, server.url()), "requests"),
        differ(&scripted, of(&one, server.url() + " argument"), "requests"),
    ];
    // the name of the file is each host's own
    std::fs::rename(&scripts[0], &scripts[1]).expect("ours");
    let same = of(&two, server.url());
    std::fs::remove_file(&scripts[1]).expect("ours");
    assert_eq!(same["plan"], scripted["plan"]);
    let others = [
        (of("", other.url()), "targets"),
        (of("-X HEAD", server.url()), "requests"),
        (of("--body x", server.url()), "requests"),
        (of("-T29s", server.url()), "timeout_s"),
        (
            of("--requests-per-connection 9", server.url()),
            "requests_per_connection",
        ),
        (of("--expect length=5", server.url()), "settings"),
    ];
    let others = others.map(|(other, key)| differ(&first, other, key));
    for (first, other, key) in others.into_iter().chain(pairs) {
        let files = [temporary("json"), temporary("json")];
        for (file, document) in files.iter().zip([first, other]) {
            std::fs::write(file, document.to_string()).expect("a file");
        }
        let output = program()
            .arg("merge")
            .args(&files)
            .output()
            .expect("it starts");
        files
            .iter()
            .for_each(|file| std::fs::remove_file(file).expect("ours"));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{key}");
        assert!(
            errors.contains(&format!("the plans differ: {key} is")),
            "{errors}"
        );
    }
}

/// Runs a script; what was printed and the result file.
fn play(text: &str, options: &str, url: &str) -> (String, Value) {
    let (script, file) = (temporary("lua"), temporary("json"));
    std::fs::write(&script, text).expect("a file");
    let output = program()
        .args(options.split_whitespace())
        .args([
            "-s".as_ref(),
            script.as_os_str(),
            "--json".as_ref(),
            file.as_os_str(),
        ])
        .arg(url)
        .output()
        .expect("it starts");
    let result = std::fs::read_to_string(&file).expect("a result");
    for path in [&script, &file] {
        std::fs::remove_file(path).expect("ours");
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (text, serde_json::from_str(&result).expect("JSON"))
}

#[test]
fn a_thread_that_its_script_stops_draws_no_alarm() {
    let server = Server::start(always(HELLO));
    let script = "
        local count = 0
        function response()
            count = count + 1
            if count == 50 then wrk.thread:stop() end
        end";
    let (_, result) = play(script, "-t1 -c2 -d2s -T30s", &server.url());
    assert!(result["little"].is_null(), "{}", result["little"]);
    let warnings = result["warnings"].to_string();
    assert!(!warnings.contains("Little"), "{warnings}");
}

#[test]
fn requests_in_flight_when_a_script_stops_a_rate_stand_in_the_percentiles() {
    // two connections test whether the server is there, of the command and of the script; the second of the load's four
    // is answered, and that ends the load
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() && conversation.number() == 3 {
            conversation.send(HELLO);
        }
        std::thread::sleep(std::time::Duration::from_secs(600));
    });
    let script = "function response() wrk.thread:stop() end";
    let (_, result) = play(script, "-t1 -c4 -R40 -d1s -T30s", &server.url());
    let (completed, unfinished) = (
        count(&result, "/totals/completed"),
        count(&result, "/totals/unfinished"),
    );
    assert!(
        completed == 1 && unfinished >= 1,
        "{completed} {unfinished}"
    );
    assert_eq!(
        count(&result, "/latency/response/count"),
        completed + unfinished
    );
}

#[test]
fn a_script_prints_in_init_before_the_run() {
    let server = Server::start(always(HELLO));
    let script = "function init() print('prepared') end";
    let (text, _) = play(script, "-t1 -c1 -d200ms -T30s", &server.url());
    let (prepared, running) = (text.find("prepared"), text.find("Running"));
    assert!(
        prepared.expect("printed") < running.expect("printed"),
        "{text}"
    );
}

#[test]
fn a_request_of_a_script_has_one_framing() {
    let server = Server::start(always(HELLO));
    let script = "
        wrk.method = 'POST'
        wrk.body = '5\\r\\nhello\\r\\n0\\r\\n\\r\\n'
        wrk.headers['transfer-encoding'] = 'chunked'";
    play(script, "-t1 -c1 -d200ms -R5 -T30s", &server.url());
    let seen = server.seen().first().cloned().expect("a request");
    assert!(seen
        .headers
        .contains(&"transfer-encoding: chunked".to_string()));
    let has_length = |field: &String| field.starts_with("Content-Length");
    assert!(!seen.headers.iter().any(has_length), "{:?}", seen.headers);
}

#[test]
fn times_are_kept_by_request_target_and_status() {
    let server = Server::start(|mut conversation| {
        while let Some(seen) = conversation.request() {
            let answer: &[u8] = match seen.path() {
                "/slow" => {
                    std::thread::sleep(std::time::Duration::from_millis(60));
                    HELLO
                }
                "/gone" => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
                _ => HELLO,
            };
            conversation.send(answer);
        }
    });
    let other = Server::start(always(HELLO));
    let urls = ["", "slow", "gone"]
        .map(|path| server.url() + path)
        .join(" ");
    let line = format!("-t1 -c40 -d1s -R80 -T30s -L {urls} {}", other.url());
    let result = measured(&line);
    let parts = &result["breakdown"];
    let rows = parts["requests"].as_array().expect("a list");
    let names: Vec<_> = rows
        .iter()
        .map(|row| row["request"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["GET /", "GET /slow", "GET /gone", "GET /"]);
    let counts = |rows: &Value| -> Vec<u64> {
        let rows = rows.as_array().expect("a list");
        rows.iter()
            .map(|row| count(row, "/latency/count"))
            .collect()
    };
    // the first server has three URLs of four
    assert_eq!(counts(&parts["requests"]), [20; 4]);
    assert_eq!(counts(&parts["targets"]), [60, 20]);
    assert!(count(&rows[1], "/latency/min") >= 60_000_000);
    assert_eq!(count(&parts["status"], "/4xx/count"), 20);
    assert_eq!(count(&parts["status"], "/2xx/count"), 60);
    let text = String::from_utf8_lossy(&run(&line).stdout).into_owned();
    assert!(text.contains("GET /slow"), "{text}");
}

#[test]
fn the_first_byte_has_a_time_of_its_own() {
    let server = Server::start(|mut conversation| {
        while conversation.request().is_some() {
            conversation.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe");
            std::thread::sleep(std::time::Duration::from_millis(300));
            conversation.send(b"llo");
        }
    });
    let result = measured(&format!("-t1 -c20 -d1s -R40 -T30s {}", server.url()));
    let latency = &result["latency"];
    assert_eq!(count(latency, "/first_byte/count"), 40);
    assert!(count(latency, "/service/min") >= 300_000_000);
    // what a busy machine adds to the first byte alone is far less than the server waits
    let (first, last) = (
        count(latency, "/first_byte/quantiles/0.5"),
        count(latency, "/service/quantiles/0.5"),
    );
    assert!(first + 40_000_000 < last, "{first} {last}");
    let whole = Server::start(always(HELLO));
    let result = measured(&format!("-t1 -c4 -d500ms -R40 -T30s {}", whole.url()));
    let latency = &result["latency"];
    assert_eq!(
        count(latency, "/first_byte/count"),
        count(latency, "/service/count")
    );
}

#[test]
fn the_result_shows_what_tcp_did() {
    let server = Server::start(always(HELLO));
    let result = measured(&format!("-t1 -c3 -d1s -R300 -T30s {}", server.url()));
    let tcp = &result["tcp"];
    let samples = count(tcp, "/rtt/count");
    assert!((1..=10).contains(&samples), "{samples}");
    assert_eq!(count(tcp, "/at_end/connections"), 3);
    assert!(count(tcp, "/at_end/segments") >= 300);
    assert!(count(tcp, "/window_segments/min") >= 1);
}

#[test]
fn the_rate_of_a_ramp_is_its_highest() {
    let server = Server::start(always(HELLO));
    for (rate, highest) in [
        ("60..20", 60.0),
        ("20..60", 60.0),
        ("40..0", 40.0),
        ("60..20:20", 60.0),
    ] {
        let line = format!("-t1 -c2 -R {rate} -d300ms -T30s {}", server.url());
        assert_eq!(measured(&line)["plan"]["rate_rps"], highest, "{rate}");
    }
}
