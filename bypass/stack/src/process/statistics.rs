//! The page of statistics that `bypass stat` reads, and its counters.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;

use bypass_stats::{About, Counter, Reason, Stats};
use bypass_sys::clock::now_ns;
use bypass_sys::process::Leaked;
use bypass_sys::thread::thread;
use bypass_sys::{kernel, numbers};

use super::log;
use super::settings::{kept_folder, profile, settings};
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

/// How often the statistics are written that are to outlive the process.
const KEEPING: Duration = Duration::from_secs(5);

/// Writes them, where an administrator has named a folder, and not more often than every few seconds unless `is_last`. When
/// to do so again.
pub fn keep(is_last: bool) -> Option<Duration> {
    static LAST_NS: AtomicU64 = AtomicU64::new(0);
    let folder = kept_folder();
    let stats = STATS.get().filter(|_| !folder.is_empty())?;
    let now = now_ns();
    let spent = Duration::from_nanos(now.saturating_sub(LAST_NS.load(Ordering::Relaxed)));
    if !is_last && spent < KEEPING {
        return Some(KEEPING - spent);
    }
    LAST_NS.store(now, Ordering::Relaxed);
    let _ = stats.keep(folder);
    Some(KEEPING)
}

/// Adds to a counter.
#[inline]
pub fn count(counter: Counter, amount: u64) {
    if let Some(stats) = STATS.get() {
        stats.add(thread().stripe(|| stats.take_stripe()), counter, amount);
    }
}

/// Why a wait that sleeps looks again after a millisecond, whatever happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Polling {
    /// A waker is lacking: no descriptor or Unix socket could be made for it.
    NoWaker,
    /// A process at the other end is confined and cannot wake others.
    Confined,
    /// Another thread, set or process waits at the same place.
    Shared,
    /// A connection to accept may come from a segment without a waiting place, or wait for the end of a child.
    Listener,
}

/// Counts a wait that sleeps.
pub fn count_sleep(why: Option<Polling>) {
    count(Counter::Sleeps, 1);
    let Some(why) = why else { return };
    count(Counter::PollingSleeps, 1);
    let counter = match why {
        Polling::NoWaker => Counter::PollingNoWaker,
        Polling::Confined => Counter::PollingConfined,
        Polling::Shared => Counter::PollingShared,
        Polling::Listener => Counter::PollingListener,
    };
    count(counter, 1);
}

/// Counts a fallback to the kernel.
pub fn fall_back(reason: Reason) {
    if let Some(stats) = STATS.get() {
        stats.fall_back(reason);
    }
}

/// Counts a socket that is left to the kernel, and keeps what it was about for `bypass stat --why`.
pub fn leave_to_kernel(reason: Reason, about: About) {
    fall_back(reason);
    decide(reason, about);
}

/// Counts a call that fails because the options forbid the kernel, and says so.
pub fn refuse(reason: Reason, about: About) {
    count(Counter::Refused, 1);
    decide(
        reason,
        About {
            has_failed: true,
            ..about
        },
    );
}

fn decide(reason: Reason, about: About) {
    if let Some(stats) = STATS.get() {
        stats.decide(reason, about);
    }
    log::decided(reason, &about);
}

/// Whether a call that would leave its socket to the kernel for this reason has to fail: the options say so, and it is
/// neither another host nor an administrator that wants the kernel.
pub fn must_fail(reason: Reason) -> bool {
    let is_wanted = matches!(reason, Reason::NotLocal | Reason::SwitchedOff);
    !settings().no_fail && !is_wanted
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
