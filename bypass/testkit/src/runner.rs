//! Runs named tests one after the other and counts passed, failed and skipped ones, as cargo does.

use std::any::Any;
use std::io::Write as _;
use std::panic;
use std::time::Instant;

/// A name and a test.
pub type Case = (&'static str, fn());

struct Skipped(String);

/// Ends the running test without failing it; `reason` names what this machine lacks.
pub fn skip(reason: impl Into<String>) -> ! {
    panic::resume_unwind(Box::new(Skipped(reason.into())))
}

/// Reports a skip of the running test to cargo's own runner, which counts it as passed; `./test`
/// counts this line, which bypasses the runner's capture, as skipped.
pub fn report_skip(reason: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("a test");
    writeln!(std::io::stderr(), "\nskipped: {name}: {reason}").expect("stderr");
}

/// Runs the cases whose name contains the first argument, each in a separate thread, and exits.
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
