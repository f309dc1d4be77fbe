//! The generator's reports about itself: warnings with their figures, steps that keep their own
//! requests, the kernel's view of when answers came.

mod support;

use load_engine::sys::socket;
use serde_json::Value;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};
use support::{always, count, measured, run, slow, temporary, Server, HELLO};

fn warnings(result: &Value) -> Vec<String> {
    let each = result["warnings"].as_array().expect("a list").iter();
    each.map(|warning| warning["id"].as_str().expect("an id").to_string())
        .collect()
}

#[test]
fn a_request_belongs_to_the_step_in_which_it_fell_due() {
    let server = slow(Duration::from_millis(300));
    let result = measured(&format!(
        "-t1 -c40 --step 500ms -R 20..60:20 -T 30s {}",
        server.url()
    ));
    let counts = |name: &str| -> Vec<u64> {
        let steps = result["steps"].as_array().expect("steps");
        steps
            .iter()
            .map(|step| step[name]["count"].as_u64().unwrap_or(0))
            .collect()
    };
    // 6 of 10, 12 of 20, 18 of 30 are answered after the end of their step
    assert_eq!(counts("response"), [10, 20, 30]);
    assert_eq!(counts("service"), [10, 20, 30]);
    assert_eq!(count(&result, "/latency/response/count"), 60);
}

#[test]
fn what_is_shed_belongs_to_the_step_in_which_it_fell_due() {
    // the first answer comes in the second step: by then all of the first one wait for too long
    let server = slow(Duration::from_millis(1500));
    let result = measured(&format!(
        "-t1 -c1 --step 1s -R 20..40:20 --deadline 100ms -T 30s {}",
        server.url()
    ));
    let shed = count(&result, "/totals/shed");
    assert!(shed >= 19, "{shed}");
    assert_eq!(count(&result, "/steps/0/response/count"), 20);
    assert_eq!(count(&result, "/steps/1/response/count"), 40);
    assert_eq!(count(&result, "/latency/response/count"), 60);
    assert_eq!(
        count(&result, "/latency/service/count") + shed,
        60,
        "what was never sent took no time to serve"
    );
}

#[test]
fn what_is_never_answered_ages_in_its_own_step() {
    let server = slow(Duration::from_secs(600));
    let result = measured(&format!(
        "-t1 -c2 --step 500ms -R 10..20:10 -T 30s --drain 100ms {}",
        server.url()
    ));
    // 2 in flight and 13 unsent: no request vanishes
    assert_eq!(count(&result, "/steps/0/response/count"), 5);
    assert_eq!(count(&result, "/steps/1/response/count"), 10);
    assert_eq!(count(&result, "/latency/censored/count"), 15);
    assert!(count(&result, "/steps/0/response/min") > 500_000_000);
}

#[test]
fn steps_of_connections_have_their_own_windows() {
    let server = Server::start(always(HELLO));
    let result = measured(&format!("-t2 -c2..6:2 --step 1s -T 30s {}", server.url()));
    let steps = result["steps"].as_array().expect("steps");
    let sum: u64 = steps
        .iter()
        .map(|step| step["completed"].as_u64().unwrap_or(0))
        .sum();
    assert_eq!(sum, count(&result, "/totals/completed_in_window"));
    for step in steps {
        assert_eq!(step["length_ns"], 1_000_000_000u64);
        assert_eq!(step["service"]["count"], step["completed"]);
    }
    assert_eq!(count(&result, "/window/length_ns"), 3_000_000_000);
}

/// Keeps a core busy until it is dropped.
struct Busy(Child);

impl Busy {
    fn on(core: usize) -> Busy {
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string(), "sh", "-c", "while :; do :; done"]);
        Busy(command.spawn().expect("taskset"))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.kill().expect("ours");
        self.0.wait().expect("it ends");
    }
}

#[test]
fn a_core_that_others_use_is_noticed() {
    let core = load_engine::sys::affinity::allowed()[0];
    let _others = [Busy::on(core), Busy::on(core)];
    let line = format!("-t1 -c4 -d1s --sink --pin {core}");
    let result = measured(&line);
    assert!(
        warnings(&result).contains(&"core-shared".to_string()),
        "{result}"
    );
    assert!(result["threads"][0]["waited"].as_f64().expect("a share") > 0.02);
    let strict = run(&format!("{line} --strict"));
    assert_eq!(strict.status.code(), Some(1));
    let text = String::from_utf8_lossy(&strict.stderr).into_owned();
    assert!(
        text.contains("other programs ran on the generator's core"),
        "{text}"
    );
}

#[test]
fn a_server_is_compared_with_the_sink() {
    let (sink, again) = (temporary("json"), temporary("json"));
    let made = run(&format!("-t1 -c4 -d500ms --sink --json {}", sink.display()));
    assert!(made.status.success());
    // the same path again is within the factor, unless the machine changed by 30 % meanwhile
    let text = std::fs::read_to_string(&sink).expect("written");
    let mut slower: Value = serde_json::from_str(&text).expect("JSON");
    slower["rps"] = Value::from(1.0);
    std::fs::write(&again, slower.to_string()).expect("a file");
    let result = measured(&format!(
        "-t1 -c4 -d500ms --sink --headroom {}",
        again.display()
    ));
    assert!(warnings(&result).contains(&"headroom".to_string()));
    let server = slow(Duration::from_millis(400));
    let result = measured(&format!(
        "-t1 -c4 -d1s --headroom {} {}",
        sink.display(),
        server.url()
    ));
    assert!(!warnings(&result).contains(&"headroom".to_string()));
    let other = run(&format!("-t2 -c4 --sink --headroom {}", sink.display()));
    assert_eq!(other.status.code(), Some(2));
    for file in [sink, again] {
        std::fs::remove_file(file).expect("ours");
    }
}

/// The kernel begins to stamp, for the whole machine, some time after the first socket has asked for
/// it, and goes on as long as there is one: this one.
struct Stamping(TcpStream);

impl Stamping {
    fn start() -> Stamping {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let asking = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let (mut other, _) = listener.accept().expect("a connection");
        socket::set_receive_timestamps(asking.as_raw_fd()).expect("an option of every kernel");
        let since = Instant::now();
        loop {
            other.write_all(b"x").expect("a reader");
            let read = socket::read_stamped(asking.as_raw_fd(), &mut [0]).expect("a byte");
            if read.1.is_some() {
                return Stamping(asking);
            }
            assert!(since.elapsed() < Duration::from_secs(60), "no stamps");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn the_kernels_stamps_end_the_latencies() {
    let server = Server::start(always(HELLO));
    let stamping = Stamping::start();
    let result = measured(&format!(
        "-t1 -c2 -d500ms -R 200 -T 30s --rx-timestamps {}",
        server.url()
    ));
    drop(stamping.0);
    assert_eq!(result["plan"]["rx_timestamps"], true);
    let completed = count(&result, "/totals/completed");
    assert_eq!(completed, 100);
    let unstamped = count(&result, "/totals/unstamped");
    assert!(unstamped < completed, "{unstamped}");
    let delays = count(&result, "/latency/client_delay/count");
    assert_eq!(
        delays + unstamped,
        completed,
        "each answer shows how long it waited there"
    );
    for line in [
        "--rx-timestamps unix:///nowhere:/",
        "--rx-timestamps --sink --headroom /none",
    ] {
        assert_ne!(run(line).status.code(), Some(0));
    }
}

#[test]
fn pauses_before_waits_are_reported_and_can_be_left_out() {
    let waiting = |line: &str| {
        let result = measured(&format!("-t1 -c32 -d500ms --sink {line}"));
        let told = |name: &str| count(&result, &format!("/waiting/{name}"));
        (told("waits"), told("paused"), told("paused_ns"))
    };
    let (waits, paused, paused_ns) = waiting("");
    assert!(waits > 0 && paused <= waits);
    assert_eq!(paused > 0, paused_ns > 0);
    let (waits, paused, paused_ns) = waiting("--coalesce never");
    assert_eq!((paused, paused_ns), (0, 0));
    assert_eq!(waits, 0, "nothing to decide");
    let (_, paused, _) = waiting("-R 20k");
    assert_eq!(paused, 0, "at a fixed rate there is none");
}

#[test]
fn waits_of_the_warm_up_are_not_those_of_the_window() {
    let server = slow(Duration::from_millis(50));
    let result = measured(&format!(
        "-t1 -c1 --warmup 3s -d400ms -T30s {}",
        server.url()
    ));
    // one for each answer, and the checks: some 12, or fewer on a busy machine. The warm-up has 90 of them
    let waits = count(&result, "/waiting/waits");
    assert!(waits <= 30, "{waits}");
}

#[test]
fn a_delay_next_to_a_rate_is_reported() {
    let server = Server::start(always(HELLO));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/delay.lua");
    let result = measured(&format!(
        "-t1 -c2 -d500ms -R 100 -T 30s -s {script} {}",
        server.url()
    ));
    assert_eq!(count(&result, "/totals/sent"), 50);
    assert!(warnings(&result).contains(&"delay-unused".to_string()));
}

#[test]
fn answers_of_one_stall_are_one_episode() {
    // all connections stand still once, together, from the first request after the hundredth: far
    // longer than a machine with other work keeps anybody waiting
    const STALL: Duration = Duration::from_millis(2500);
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    static START: OnceLock<Instant> = OnceLock::new();
    let server = Server::start(move |mut conversation| {
        while conversation.request().is_some() {
            if ASKED.fetch_add(1, Ordering::Relaxed) >= 100 {
                let start = START.get_or_init(Instant::now);
                std::thread::sleep(STALL.saturating_sub(start.elapsed()));
            }
            if !conversation.send(HELLO) {
                return;
            }
        }
    });
    let result = measured(&format!("-t1 -c50 -d5s -R 250 -T 30s {}", server.url()));
    // half of the answers are slow; all those beyond the 99th percentile by the same cause
    assert_eq!(
        count(&result, "/episodes/0.99"),
        1,
        "{}",
        result["episodes"]
    );
    assert!(result["episodes"]["0.9999"].is_null());
}

fn send_signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args([name, &pid]).status();
    assert!(sent.expect("kill").success());
}

/// The largest body that a socket of this machine holds for a program that does not read: more than the
/// generator reads at once where that may be.
fn long_body() -> Vec<u8> {
    let limit = std::fs::read_to_string("/proc/sys/net/core/rmem_max").expect("a limit");
    let limit: usize = limit.trim().parse().expect("a number");
    vec![b'x'; (limit / 4).min(1 << 20)]
}

#[test]
fn responses_that_came_while_the_generator_was_stopped_are_counted() {
    // more than one wait of the generator reports
    const REQUESTS: usize = 150;
    let (asked, answered, answers) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicUsize::new(0)),
        Arc::new(Barrier::new(REQUESTS + 1)),
    );
    let (own, sent, open) = (
        Arc::clone(&asked),
        Arc::clone(&answered),
        Arc::clone(&answers),
    );
    let server = Server::start(move |mut conversation| {
        if conversation.request().is_some() {
            let is_first = own.fetch_add(1, Ordering::Relaxed) == 0;
            open.wait();
            if is_first {
                let body = long_body();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                conversation.send(&[head.as_bytes(), &body].concat());
            } else {
                conversation.send(HELLO);
            }
            sent.fetch_add(1, Ordering::Relaxed);
            // the next one is not there
            conversation.request();
        }
    });
    let file = temporary("json");
    let child = support::program()
        .args([
            "-t1",
            "-n150",
            "-c150",
            "-d60s",
            "-T4s",
            "--connect-timeout=30s",
            "--receive-buffer=1G",
            "--json",
        ])
        .args([file.as_os_str(), server.url().as_ref()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    support::wait_until(|| asked.load(Ordering::Relaxed) == REQUESTS);
    send_signal(&child, "-STOP");
    let state = format!("/proc/{}/stat", child.id());
    let is_stopped = || std::fs::read_to_string(&state).is_ok_and(|text| text.contains(") T "));
    support::wait_until(is_stopped);
    let stopped = Instant::now();
    answers.wait();
    support::wait_until(|| answered.load(Ordering::Relaxed) == REQUESTS);
    // for longer than the timeout
    std::thread::sleep(Duration::from_millis(4100).saturating_sub(stopped.elapsed()));
    send_signal(&child, "-CONT");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let text = std::fs::read_to_string(&file).expect("written");
    std::fs::remove_file(&file).expect("ours");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(count(&result, "/errors/total"), 0, "{}", result["errors"]);
    assert_eq!(count(&result, "/totals/completed"), REQUESTS as u64);
    assert!(
        warnings(&result).contains(&"suspended".to_string()),
        "{}",
        result["warnings"]
    );
}

#[test]
fn a_generator_that_was_away_blames_itself() {
    let server = Server::start(always(HELLO));
    let mut command = support::program();
    let file = temporary("json");
    command
        // so many connections that one is free when the program is stopped, however slow the server
        .args(["-t1", "-c64", "-d4s", "-R300", "-T30s", "--json"])
        .arg(&file)
        .arg(server.url());
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    // the first 100 of 1200
    while server.asked() < 100 {
        std::thread::sleep(Duration::from_millis(5));
    }
    send_signal(&child, "-STOP");
    std::thread::sleep(Duration::from_millis(1500));
    send_signal(&child, "-CONT");
    let status = child.wait_with_output().expect("it ends").status;
    assert!(status.success());
    let text = std::fs::read_to_string(&file).expect("written");
    std::fs::remove_file(&file).expect("ours");
    let result: Value = serde_json::from_str(&text).expect("JSON");
    assert!(
        warnings(&result).contains(&"lateness".to_string()),
        "{}",
        result["warnings"]
    );
    // 64 connections were free, yet 450 of 1200 requests were late, by up to 1500 ms: its own doing, but
    // for what a slow server adds while it catches up
    let late = result["latency"]["lateness"]["quantiles"]["0.99"]
        .as_u64()
        .expect("known");
    assert!(late > 500_000_000, "{late}");
}
