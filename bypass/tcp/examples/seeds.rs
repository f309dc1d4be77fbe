//! Runs the simulation of `tests/simulation.rs` for many seeds: `seeds [COUNT [FIRST]]`. A seed that
//! fails is printed, and the exit code is 1.

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};

fn main() {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok())
        .collect();
    let count = numbers.first().copied().unwrap_or(1_000);
    let first = numbers.get(1).copied().unwrap_or(0);
    let next = AtomicU64::new(first);
    let failed = AtomicU64::new(0);
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + count {
                    break;
                }
                if std::panic::catch_unwind(|| support::simulation::run(seed)).is_err() {
                    eprintln!("seed {seed} failed");
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!("{count} seeds from {first}, {failed} failed");
    std::process::exit(i32::from(failed > 0));
}
