//! Runs the simulation of `tests/simulation.rs` for many seeds: `seeds [--twice] [COUNT [FIRST]]`. With
//! `--twice` each seed runs two times and must send the same frames at the same times. A seed that
//! fails is printed, and the exit code is 1.

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_twice = arguments.first().is_some_and(|first| first == "--twice");
    arguments.drain(..usize::from(is_twice));
    let numbers: Result<Vec<u64>, _> = arguments.iter().map(|text| text.parse()).collect();
    let (count, first) = match numbers.as_deref() {
        Ok([]) => (1_000, 0),
        Ok([count]) => (*count, 0),
        Ok([count, first]) => (*count, *first),
        _ => {
            eprintln!(
                "seeds: {}: use seeds [--twice] [COUNT [FIRST]]",
                arguments.join(" ")
            );
            std::process::exit(2);
        }
    };
    let run = if is_twice {
        support::simulation::run_twice
    } else {
        support::simulation::run
    };
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
                if std::panic::catch_unwind(|| run(seed)).is_err() {
                    eprintln!("seed {seed} failed");
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let failed = failed.into_inner();
    let each = if is_twice { ", each run twice" } else { "" };
    println!("{count} seeds from {first}{each}, {failed} failed");
    std::process::exit(i32::from(failed > 0));
}
