//! How often processes of the other side are met again whose links end at once: another process than that may bear the number
//! in a segment, where the other side can write it.

use std::sync::Mutex;

use bypass_sys::clock::now_ns;

/// After so many meetings in a row a process does not take part. One that lives closes a link when it calls exec, or when
/// too many call it at once.
pub const MEETINGS: u32 = 64;
/// A link that was open so long begins a new row.
const LASTING_NS: u64 = 1_000_000_000;

struct Meeting {
    segment: u64,
    process: u64,
    times: u32,
    since_ns: u64,
}

static RECENT: Mutex<Vec<Meeting>> = Mutex::new(Vec::new());

/// Locks them across a fork.
pub(super) fn hold() -> impl Sized {
    RECENT.lock().ok()
}

/// In a forked child: they were the parent's.
pub(super) fn forget() {
    if let Ok(mut recent) = RECENT.lock() {
        recent.clear();
    }
}

/// Process `process` is met in segment `segment` once more; how often in a row.
pub(super) fn count(segment: u64, process: u64) -> u32 {
    let now = now_ns();
    let Ok(mut recent) = RECENT.lock() else {
        return 1;
    };
    recent.retain(|one| now.saturating_sub(one.since_ns) < LASTING_NS);
    let mut all = recent.iter_mut();
    if let Some(one) = all.find(|one| (one.segment, one.process) == (segment, process)) {
        one.times += 1;
        one.since_ns = now;
        return one.times;
    }
    recent.push(Meeting {
        segment,
        process,
        times: 1,
        since_ns: now,
    });
    1
}
