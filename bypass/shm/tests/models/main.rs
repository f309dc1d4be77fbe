//! Models: the code of rings, doorbells and the accept queue under every order of memory
//! operations that the language allows, by loom.
//!
//! The sources are compiled once more into this program, with loom's atomics (`atomic`) and a
//! miniature of the shared memory (`layout`, `segment`) in the place of the real ones. Their own
//! tests come along and are not run here.
//! `cargo test -p bypass-shm --test models [NAME]`; a model that fails prints loom's report.

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

#[path = "../../src/accept_queue.rs"]
#[allow(dead_code, unused_imports)]
mod accept_queue;
mod atomic;
#[path = "../../src/doorbell.rs"]
#[allow(dead_code, unused_imports)]
mod doorbell;
#[path = "../../src/extents.rs"]
#[allow(dead_code, unused_imports)]
mod extents;
#[path = "../../src/holders.rs"]
#[allow(dead_code, unused_imports)]
mod holders;
mod layout;
#[path = "../../src/record.rs"]
#[allow(dead_code, unused_imports)]
mod record;
#[path = "../../src/ring.rs"]
#[allow(dead_code, unused_imports)]
mod ring;
mod segment;

mod accepting;
mod holding;
mod ringing;
mod streaming;

/// A name and what is to hold in every execution.
type Model = (&'static str, fn());

static EXECUTIONS: AtomicUsize = AtomicUsize::new(0);

fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let all = [
        streaming::MODELS,
        ringing::MODELS,
        accepting::MODELS,
        holding::MODELS,
    ];
    let models: Vec<Model> = all
        .concat()
        .into_iter()
        .filter(|(name, _)| {
            wanted
                .as_ref()
                .is_none_or(|word| name.contains(word.as_str()))
        })
        .collect();
    let mut failed = 0;
    for (name, model) in &models {
        let started = Instant::now();
        let is_right = panic::catch_unwind(|| run(*model));
        let verdict = if is_right.is_ok() { "ok" } else { "FAILED" };
        let executions = EXECUTIONS.swap(0, Ordering::Relaxed);
        let seconds = started.elapsed().as_secs_f64();
        println!("model {name} ... {verdict} ({executions} executions, {seconds:.1} s)");
        failed += usize::from(is_right.is_err());
    }
    let (word, passed) = (
        if failed == 0 { "ok" } else { "FAILED" },
        models.len() - failed,
    );
    println!("test result: {word}. {passed} passed; {failed} failed; 0 ignored");
    std::process::exit(i32::from(failed > 0) * 101);
}

/// Every order, without a bound: the models are small enough.
fn run(model: fn()) {
    loom::model::Builder::new().check(move || {
        EXECUTIONS.fetch_add(1, Ordering::Relaxed);
        model();
    });
}
