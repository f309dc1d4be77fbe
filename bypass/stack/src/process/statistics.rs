//! The page of statistics that `bypass stat` reads, and its counters.

use bypass_stats::{Counter, Reason, Stats};
use bypass_sys::process::Leaked;
use bypass_sys::thread::thread;
use bypass_sys::{kernel, numbers};

use super::settings::{profile, settings};
use super::table;

static STATS: Leaked<Stats> = Leaked::new();

/// Makes the page of a process that has begun.
pub fn open() {
    let was_switched_off = is_switched_off();
    if let Ok(stats) = Stats::create(profile(), &settings().cluster_name, &command()) {
        table::hide(stats.fd());
        if was_switched_off {
            stats.switch_off();
        }
        STATS.put(stats);
    }
}

fn command() -> String {
    let mut bytes = [0u8; 64];
    let count = numbers::high(|| kernel::open(c"/proc/self/comm", libc::O_RDONLY))
        .and_then(|file| kernel::read(file.0, &mut bytes));
    String::from_utf8_lossy(&bytes[..count.unwrap_or(0)])
        .trim()
        .to_owned()
}

/// Adds to a counter.
#[inline]
pub fn count(counter: Counter, amount: u64) {
    if let Some(stats) = STATS.get() {
        stats.add(thread().stripe(|| stats.take_stripe()), counter, amount);
    }
}

/// Counts a wait that sleeps; whether it looks again after a millisecond, whatever happens.
pub fn count_sleep(is_polling: bool) {
    count(Counter::Sleeps, 1);
    if is_polling {
        count(Counter::PollingSleeps, 1);
    }
}

/// Counts a fallback to the kernel.
pub fn fall_back(reason: Reason) {
    if let Some(stats) = STATS.get() {
        stats.fall_back(reason);
    }
}

/// Whether an administrator has switched new connections off.
#[inline]
pub fn is_switched_off() -> bool {
    stats().is_some_and(Stats::is_switched_off)
}

/// The page, as long as somebody captures what this process sends and receives.
#[inline]
pub fn captured() -> Option<&'static Stats> {
    stats().filter(|stats| stats.is_captured())
}

/// The page of statistics.
#[inline]
pub fn stats() -> Option<&'static Stats> {
    STATS.get()
}
