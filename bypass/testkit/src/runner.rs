//! Runs named tests one after the other and counts passed, failed and skipped as cargo's does.

use std::any::Any;
use std::io::Write as _;
use std::panic;
use std::time::Instant;

/// A name and what is to hold.
pub type Case = (&'static str, fn());

struct Skipped(String);

/// Ends the running test without failing it; `reason` says what this machine lacks.
pub fn skip(reason: impl Into<String>) -> ! {
    panic::resume_unwind(Box::new(Skipped(reason.into())))
}

/// Reports that the running test of cargo's own runner did not run. That runner cannot know and
/// counts it as passed; `./test` counts this line, which goes past the runner's capture, as skipped.
pub fn report_skip(reason: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    writeln!(std::io::stderr(), "\nskipped: {name}: {reason}").expect("stderr");
}

/// Runs the cases whose name contains the first argument, each in a thread of its own, and exits.
pub fn main(cases: &[Case]) -> ! {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, case) in cases {
        if wanted.as_deref().is_some_and(|word| !name.contains(word)) {
            continue;
        }
        let started = Instant::now();
        match std::thread::spawn(*case).join() {
            Ok(()) => {
                println!(
                    "test {name} ... ok ({:.1} s)",
                    started.elapsed().as_secs_f64()
                );
                passed += 1;
            }
            Err(payload) => match reason(payload) {
                Some(reason) => {
                    println!("test {name} ... ignored, {reason}");
                    skipped += 1;
                }
                None => {
                    println!("test {name} ... FAILED");
                    failed += 1;
                }
            },
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {passed} passed; {failed} failed; {skipped} ignored");
    std::process::exit(i32::from(failed > 0) * 101)
}

fn reason(payload: Box<dyn Any + Send>) -> Option<String> {
    payload.downcast::<Skipped>().ok().map(|skipped| skipped.0)
}
