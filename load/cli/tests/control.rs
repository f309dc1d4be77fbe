//! The gate: a controller holds the load back and reads its counters while it runs.

#[path = "support/http2.rs"]
mod http2;
mod support;

use http2::Http2Server;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use support::{always, count, program, run, temporary, Conversation, Server, HELLO};

/// Far longer than anything takes, also on a machine that is busy with something else.
const LONG: Duration = Duration::from_secs(60);
const SENDING: u32 = 1;
const HELD: u32 = 2;
const ENDED: u32 = 3;

/// A controller that reads and writes the file itself: pages of a mapped file are those of the file.
struct Controller {
    path: PathBuf,
    threads: usize,
}

impl Controller {
    fn find(path: &Path, threads: usize) -> Controller {
        let deadline = Instant::now() + LONG;
        while !path.exists() {
            assert!(Instant::now() < deadline, "no control file");
            std::thread::sleep(Duration::from_millis(2));
        }
        let controller = Controller {
            path: path.into(),
            threads,
        };
        assert_eq!(&controller.bytes()[..8], b"wsload1\0");
        assert_eq!(controller.bytes()[8], threads as u8);
        controller
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).expect("the control file")
    }

    fn write(&self, at: u64, bytes: &[u8]) {
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().write(true).open(&self.path);
        let file = file.expect("the control file");
        file.write_all_at(bytes, at).expect("written");
    }

    fn hold(&self, longest: Duration) {
        let now_ns = load_engine::sys::clock::monotonic_ns();
        let until_ns = now_ns + longest.as_nanos() as u64;
        self.write(16, &until_ns.to_ne_bytes());
        self.write(12, &1u32.to_ne_bytes());
    }

    fn go(&self) {
        self.write(12, &0u32.to_ne_bytes());
    }

    fn states(&self) -> Vec<u32> {
        let bytes = self.bytes();
        let state = |slot: usize| bytes[slot..slot + 4].try_into().expect("4 bytes");
        let slots = (0..self.threads).map(|thread| 64 + 64 * thread);
        slots.map(|slot| u32::from_ne_bytes(state(slot))).collect()
    }

    /// A word of all slots, added up: 1 sent, 2 responses, 3 errors, 4 non-2xx, 5 bytes, 6 in flight.
    fn sum(&self, word: usize) -> u64 {
        let bytes = self.bytes();
        let at = |thread: usize| 64 + 64 * thread + 8 * word;
        let read = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        (0..self.threads).map(|thread| read(at(thread))).sum()
    }

    fn wait_for(&self, state: u32) {
        self.wait(|own| own.states().iter().all(|&is| is == state));
    }

    fn wait(&self, until: impl Fn(&Controller) -> bool) {
        let deadline = Instant::now() + LONG;
        while !until(self) {
            assert!(Instant::now() < deadline, "states {:?}", self.states());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A running load with its controller; it ends with the test.
struct Load {
    child: Child,
    controller: Controller,
    result: PathBuf,
}

impl Load {
    fn start(line: &str, threads: usize) -> Load {
        let (control, result) = (temporary("control"), temporary("json"));
        let child = program()
            .args(["--control", &control.display().to_string()])
            .args(["--json", &result.display().to_string()])
            .args(["-d", "600s", "-T", "500s", "-t", &threads.to_string()])
            .args(line.split_whitespace())
            .stdout(Stdio::null())
            .spawn()
            .expect("the command starts");
        let controller = Controller::find(&control, threads);
        let load = Load {
            child,
            controller,
            result,
        };
        load.controller.wait(|own| own.sum(2) > 0);
        load
    }

    /// Ends it as Ctrl-C does; its result.
    fn end(mut self) -> Value {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &pid]).status();
        assert!(sent.expect("kill").success());
        assert!(self.child.wait().expect("it ends").success());
        let text = std::fs::read_to_string(&self.result).expect("a result file");
        std::fs::remove_file(&self.result).expect("ours");
        serde_json::from_str(&text).expect("JSON")
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.controller.path);
    }
}

#[test]
fn held_nothing_is_in_flight_and_the_same_connections_go_on() {
    let server = Server::start(always(HELLO));
    let load = Load::start(&format!("-c8 {}", server.url()), 2);
    let own = &load.controller;
    for _ in 0..3 {
        own.hold(LONG);
        own.wait_for(HELD);
        let (sent, answered) = (own.sum(1), own.sum(2));
        assert_eq!((own.sum(6), sent), (0, answered), "nothing is in flight");
        assert_eq!(server.asked() as u64, sent, "the server has seen all of it");
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!((own.sum(1), server.asked() as u64), (sent, sent));
        own.go();
        own.wait(|own| own.states().iter().all(|&state| state != HELD));
        own.wait(|own| own.sum(2) > answered + 8);
    }
    let connects = count(&load.end(), "/totals/connects");
    assert_eq!(connects, 8, "no connection was opened again");
}

#[test]
fn the_counters_are_those_of_the_result_file() {
    let server = Server::start(|mut conversation: Conversation| {
        let mut number = 0;
        while conversation.request().is_some() {
            number += 1;
            let bad = b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
            let answer = if number % 3 == 0 { &bad[..] } else { HELLO };
            if !conversation.send(answer) {
                return;
            }
        }
    });
    let load = Load::start(&format!("-c4 {}", server.url()), 2);
    load.controller.wait(|own| own.sum(2) > 1000);
    load.controller.hold(LONG);
    load.controller.wait_for(HELD);
    let sums: Vec<u64> = (1..=5).map(|word| load.controller.sum(word)).collect();
    let path = load.controller.path.clone();
    let after = Controller {
        path: path.with_extension("kept"),
        threads: 2,
    };
    std::fs::hard_link(&path, &after.path).expect("a link");
    let result = load.end();
    let names = [
        "/totals/sent",
        "/totals/completed",
        "/errors/total",
        "/totals/non_2xx",
    ];
    for (place, name) in names.iter().enumerate() {
        assert_eq!(count(&result, name), sums[place], "{name}");
    }
    assert_eq!(count(&result, "/totals/bytes_in"), sums[4]);
    assert_eq!(after.states(), [ENDED, ENDED]);
    assert_eq!(after.sum(2), sums[1]);
    std::fs::remove_file(&after.path).expect("ours");
}

#[test]
fn time_at_the_gate_is_in_no_latency() {
    let server = Server::start(always(HELLO));
    let load = Load::start(&format!("-c2 {}", server.url()), 1);
    load.controller.hold(LONG);
    load.controller.wait_for(HELD);
    let answered = load.controller.sum(2);
    std::thread::sleep(Duration::from_secs(4));
    load.controller.go();
    load.controller.wait(|own| own.sum(2) > answered + 100);
    let result = load.end();
    let longest_ns = count(&result, "/latency/service/max");
    assert!(longest_ns < 3_900_000_000, "{longest_ns}");
}

#[test]
fn a_hold_ends_when_its_controller_dies() {
    let server = Server::start(always(HELLO));
    let load = Load::start(&format!("-c2 {}", server.url()), 1);
    // long enough to be seen while others use the cores
    load.controller.hold(Duration::from_secs(6));
    load.controller.wait_for(HELD);
    let answered = load.controller.sum(2);
    // and no controller says go
    load.controller.wait(|own| own.sum(2) > answered + 100);
    load.end();
}

#[test]
fn a_connection_that_ends_at_the_gate_is_opened_again_and_held() {
    // each connection is closed after a hundred answers, some of them while they are held
    let server = Server::start(|mut conversation: Conversation| {
        for _ in 0..100 {
            if conversation.request().is_none() || !conversation.send(HELLO) {
                return;
            }
        }
    });
    let load = Load::start(&format!("-c4 {}", server.url()), 1);
    for _ in 0..5 {
        let answered = load.controller.sum(2);
        load.controller.hold(LONG);
        load.controller.wait_for(HELD);
        let sent = load.controller.sum(1);
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(
            load.controller.sum(1),
            sent,
            "a fresh connection is held too"
        );
        load.controller.go();
        load.controller.wait(|own| own.sum(2) > answered + 200);
    }
    assert!(server.accepted() > 4);
    load.end();
}

#[test]
fn streams_of_http2_are_held_too() {
    let server = Http2Server::hello();
    let load = Load::start(&format!("--http2 --streams 5 -c3 {}", server.url()), 1);
    let own = &load.controller;
    for _ in 0..3 {
        own.hold(LONG);
        own.wait_for(HELD);
        let answered = own.sum(2);
        assert_eq!((own.sum(6), own.sum(1)), (0, answered));
        own.go();
        own.wait(|own| own.sum(2) > answered + 30);
    }
    assert_eq!(server.connections(), 3);
    own.hold(LONG);
    own.wait_for(HELD);
    let answered = own.sum(2);
    assert_eq!(count(&load.end(), "/totals/completed"), answered);
}

#[test]
fn a_script_that_delays_is_held_too() {
    let script = temporary("lua");
    std::fs::write(&script, "function delay() return 1 end").expect("written");
    let server = Server::start(always(HELLO));
    let line = format!("-c4 -s {} {}", script.display(), server.url());
    let load = Load::start(&line, 1);
    load.controller.hold(LONG);
    load.controller.wait_for(HELD);
    let sent = load.controller.sum(1);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(load.controller.sum(1), sent);
    load.controller.go();
    load.controller.wait(|own| own.sum(2) > sent + 4);
    assert_eq!(load.controller.states(), [SENDING]);
    load.end();
    std::fs::remove_file(&script).expect("ours");
}

#[test]
fn an_open_loop_has_no_gate_and_a_folder_that_is_missing_is_refused() {
    let refused = |line: &str, why: &str| {
        let output = run(line);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(why), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    };
    let server = Server::start(always(HELLO));
    let url = server.url();
    refused(
        &format!("--control /tmp/x -R 100 {url}"),
        "--control: only a closed loop can be held back; leave out --rate",
    );
    refused(
        &format!("--control /tmp/x --probe 10 {url}"),
        "leave out --probe",
    );
    refused(
        &format!("--control /nowhere/x {url}"),
        "--control: cannot make /nowhere/x: No such file",
    );
}
