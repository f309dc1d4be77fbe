//! Goodput of bulk transfers between two engines over a simulated link, in virtual time: what loss recovery and
//! congestion control make of loss and delay, without a machine that disturbs.
//!
//! `goodput [SEEDS]` prints a table for the conditions of `bypass/bench/impaired.py bulk`: 200 Mb/s, a queue of
//! 60 ms, loss in both directions, four flows for four seconds; means of as many seeds.

#[path = "../tests/support/mod.rs"]
mod support;

use bypass_tcp::Handle;
use support::{config, Faults, Random, World};

const RATE_BPS: u64 = 200_000_000;
const QUEUE_US: u64 = 60_000;
const FLOWS: usize = 4;
const SECONDS: u64 = 4;

fn main() {
    let seeds: u64 = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(3);
    println!("loss      round trip   Mb/s    retransmitted   timeouts");
    for loss_per_mille in [0, 1, 10, 50] {
        for rtt_us in [1_000, 20_000, 100_000] {
            let runs = (0..seeds).map(|seed| run(loss_per_mille, rtt_us, seed));
            let sums = runs.fold([0.0; 3], |sums, one| [0, 1, 2].map(|at| sums[at] + one[at]));
            let [rate, resent, timeouts] = sums.map(|sum| sum / seeds as f64);
            let (loss, rtt) = (f64::from(loss_per_mille) / 10.0, rtt_us / 1_000);
            println!("{loss:4.1} %  {rtt:6} ms  {rate:8.2}  {resent:12.0}  {timeouts:9.1}");
        }
    }
}

/// Mb/s, segments sent again, and retransmission timeouts of one run.
fn run(loss: u32, rtt_us: u64, seed: u64) -> [f64; 3] {
    let mut world = World::new([config(1), config(2)]);
    world.is_strict = false;
    world.random = Random(seed);
    world.delay_us = rtt_us / 2;
    world.rate = RATE_BPS;
    world.queue_us = QUEUE_US;
    let listener = world.listen();
    let flows: Vec<_> = (0..FLOWS).map(|_| world.connect_to(listener)).collect();
    world.faults = Faults {
        loss,
        ..Faults::default()
    };
    let until_us = world.now_us + SECONDS * 1_000_000;
    let mut received = 0;
    loop {
        for (client, server) in &flows {
            fill(&mut world, *client);
            received += world.read(1, *server).len();
        }
        world.flush(0);
        if !world.step(until_us) {
            break;
        }
    }
    let stats = world.hosts[0].engine.stats();
    let rate = received as f64 * 8.0 / SECONDS as f64 / 1e6;
    [rate, stats.retrans_segs as f64, stats.timeouts as f64]
}

fn fill(world: &mut World, handle: Handle) {
    let piece = [0; 16_384];
    let now_us = world.now_us;
    while world.hosts[0]
        .engine
        .send(now_us, handle, &piece, false)
        .is_ok()
    {}
}
