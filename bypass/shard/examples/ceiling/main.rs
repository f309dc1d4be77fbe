//! What a request costs two shards that a link in shared memory joins: the ceiling of engine and device, with no kernel
//! between them and no program above.
//!
//!     cargo run --release -p bypass-shard --example ceiling
//!         a table of times: server and client with a core each, and in turns on one core
//!     cargo run --release -p bypass-shard --example ceiling -- CASE UNITS
//!         one case in turns, in virtual time and without output: it takes the same instructions each time, which
//!         tests/instructions.py counts
//!
//! Cases: `0` and `1024`, responses with a body of so many bytes behind a header of 150, to requests of 100, on 50
//! connections; `one`, with no body and on one connection; `bulk` and `gso`, full segments from the server to the client
//! on one connection, single and as GSO segments.

mod ends;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bypass_sys::clock;
use bypass_xdp::memory::Shape;

use ends::{ask_round, serve_round, Client, Server};

const ROUNDS: usize = 7;
const WARM_UP: Duration = Duration::from_millis(50);
const RUN: Duration = Duration::from_millis(300);
/// Virtual time of a turn.
const TURN_US: u64 = 20;
/// Time in which the wheel of timers turns once: from a multiple of it on, equal times have equal places.
const WHEEL_US: u64 = 1000 << 24;

/// What is exchanged.
#[derive(Clone, Copy)]
pub struct Case {
    name: &'static str,
    /// Bytes of a response; None: the server sends without end.
    response: Option<usize>,
    connections: usize,
    segments_max: u32,
}

const HEADER: usize = 150;
const CASES: [Case; 5] = [
    requests("0", 0, 50),
    requests("1024", 1024, 50),
    requests("one", 0, 1),
    segments("bulk", 0),
    segments("gso", 65_000),
];

const fn requests(name: &'static str, body: usize, connections: usize) -> Case {
    Case {
        name,
        response: Some(HEADER + body),
        connections,
        segments_max: 0,
    }
}

const fn segments(name: &'static str, segments_max: u32) -> Case {
    Case {
        name,
        response: None,
        connections: 1,
        segments_max,
    }
}

impl Case {
    fn ends(self) -> (Server, Client) {
        let shape = Shape {
            mtu: 1500,
            segments_max: self.segments_max,
        };
        let (a, b) = bypass_xdp::memory::pair(shape).expect("memory for a link");
        (Server::new(a, self), Client::new(b, self))
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match &words[..] {
        [] => print_times(),
        [name, units] => {
            let case = CASES.into_iter().find(|case| case.name == name);
            let (Some(case), Ok(units)) = (case, units.parse()) else {
                eprintln!("ceiling: {name} {units}: no such case, or no number (cases: 0, 1024, one, bulk, gso)");
                return ExitCode::from(2);
            };
            in_virtual_time(case, units);
        }
        _ => {
            eprintln!("ceiling: unexpected arguments (give none, or CASE UNITS)");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn in_virtual_time(case: Case, units: u64) {
    let (mut server, mut client) = case.ends();
    let mut now_us = now_us().next_multiple_of(WHEEL_US);
    while client.units() < units {
        now_us += TURN_US;
        ask_round(&mut client, now_us);
        serve_round(&mut server, now_us);
    }
}

fn print_times() {
    println!(
        "{:6} {:>28} {:>28}",
        "case", "two cores: ns (range)", "in turns: ns (range)"
    );
    for case in CASES {
        let apart = text((0..ROUNDS).map(|_| on_two_cores(case)).collect());
        let in_turns = text((0..ROUNDS).map(|_| on_one_core(case)).collect());
        println!("{:6} {apart:>28} {in_turns:>28}", case.name);
    }
}

/// The median and the range.
fn text(mut found: Vec<f64>) -> String {
    found.sort_by(f64::total_cmp);
    let (least, most) = (found[0], found[found.len() - 1]);
    format!("{:.0} ({least:.0}–{most:.0})", found[found.len() / 2])
}

/// Nanoseconds for each unit that the client gets, once both are warm.
fn on_two_cores(case: Case) -> f64 {
    let (mut server, mut client) = case.ends();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                serve_round(&mut server, now_us());
            }
        });
        let cost = measure(&mut client, |client| {
            ask_round(client, now_us());
        });
        is_over.store(true, Ordering::Relaxed);
        cost
    })
}

/// The same on one core: what both ends need together.
fn on_one_core(case: Case) -> f64 {
    let (mut server, mut client) = case.ends();
    measure(&mut client, |client| {
        ask_round(client, now_us());
        serve_round(&mut server, now_us());
    })
}

fn measure(client: &mut Client, mut turn: impl FnMut(&mut Client)) -> f64 {
    let mut run = |time: Duration| {
        let (begun, before) = (Instant::now(), client.units());
        while begun.elapsed() < time {
            turn(client);
        }
        begun.elapsed().as_nanos() as f64 / (client.units() - before).max(1) as f64
    };
    run(WARM_UP);
    run(RUN)
}

fn now_us() -> u64 {
    clock::now_ns() / 1000
}
