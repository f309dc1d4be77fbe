//! Ends the program when it was asked to end and a script does not come back: a thread in an endless loop
//! of Lua looks at no signal, and `timeout` or a CI job sends no second one.

use crate::console::say;
use load_engine::sys::signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks.
const LOOK: Duration = Duration::from_millis(50);
/// So many looks, 3 s, a script may take to come back; threads look at signals ten times a second. Looks are
/// counted: a process that is stopped has none, and its threads have none either.
const PATIENCE: u32 = 60;

/// Watches until it is dropped.
pub struct Watchdog(Arc<AtomicBool>);

impl Watchdog {
    /// Over the threads that run a script.
    pub fn start(script: &str, code: u8) -> Watchdog {
        let (over, script) = (Arc::new(AtomicBool::new(false)), script.to_string());
        let watched = Arc::clone(&over);
        let watcher = std::thread::Builder::new();
        // where no thread can be had, a second signal ends the program
        drop(watcher.spawn(move || watch(&watched, &script, code)));
        Watchdog(over)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn watch(over: &AtomicBool, script: &str, code: u8) {
    let mut looks = 0;
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        if !signal::stop_wanted() {
            continue;
        }
        looks += 1;
        if looks > PATIENCE && !over.load(Ordering::Relaxed) {
            say(&format!(
                "wirespeed-load: {script}: one of its functions does not return; ended without a report"
            ));
            std::process::exit(code.into());
        }
    }
}
