//! Models: ownership without locks, and how it ends, under every order of memory operations that the
//! language allows, by loom.
//!
//! `src/process/sole/ownership.rs` is compiled once more into this program, with loom's atomics. The fence
//! that the kernel makes the owner pass (membarrier) is played as what it is: an interrupt before any
//! one of the owner's memory operations; each place has its own run (`sole/atomic`).
//! `cargo test -p bypass-stack --test models [NAME]`; a model that fails prints loom's report.

use std::panic;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

mod owning;
mod sole {
    //! The module that holds the ownership, as the source names it.
    pub mod atomic;
    #[path = "../../../src/process/sole/ownership.rs"]
    #[allow(dead_code, reason = "the stack uses all of it")]
    pub mod ownership;
}

/// A name and what is to hold in every execution.
type Model = (&'static str, fn());

/// Switches between threads that could both go on, in one execution. Each wait switches besides, so
/// that the interrupt alone costs none.
const PREEMPTIONS_MAX: usize = 2;

static EXECUTIONS: AtomicUsize = AtomicUsize::new(0);

fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let is_wanted = |name: &str| wanted.as_deref().is_none_or(|word| name.contains(word));
    let (mut passed, mut failed) = (0, 0);
    for (name, model) in owning::MODELS.iter().filter(|(name, _)| is_wanted(name)) {
        let started = Instant::now();
        let is_right = panic::catch_unwind(|| run_with_each_interrupt(*model)).is_ok();
        let verdict = if is_right { "ok" } else { "FAILED" };
        let executions = EXECUTIONS.swap(0, Ordering::Relaxed);
        let seconds = started.elapsed().as_secs_f64();
        println!("model {name} ... {verdict} ({executions} executions, {seconds:.1} s)");
        passed += usize::from(is_right);
        failed += usize::from(!is_right);
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {passed} passed; {failed} failed; 0 ignored");
    std::process::exit(i32::from(failed > 0) * 101);
}

/// Until an interrupt that would come after everything else has had its run too.
fn run_with_each_interrupt(model: fn()) {
    for place in 0.. {
        sole::atomic::interrupt_before(place);
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(PREEMPTIONS_MAX);
        builder.check(move || {
            EXECUTIONS.fetch_add(1, Ordering::Relaxed);
            model();
        });
        if place > sole::atomic::operations_max() {
            return;
        }
    }
}
