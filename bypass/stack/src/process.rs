//! What there is once in a process: its number, its settings, its statistics.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use bypass_options::{Resolved, Settings, PROFILE_VARIABLE};
use bypass_stats::{Counter, Reason, Stats};
use bypass_sys::{kernel, waker};

use crate::{pool, table};
use bypass_sys::process::Leaked;
use bypass_sys::sandbox::is_confined;
use bypass_sys::thread::thread;

static NUMBER: AtomicU64 = AtomicU64::new(0);
static WAKERS: AtomicU32 = AtomicU32::new(1);
static SENDER: AtomicI32 = AtomicI32::new(-1);
static SETTINGS: OnceLock<Settings> = OnceLock::new();
static PROFILE: OnceLock<String> = OnceLock::new();
static STATS: Leaked<Stats> = Leaked::new();
const RING_BYTES_VARIABLE: &str = "WIRESPEED_RING_BYTES";
static RING_BYTES: OnceLock<usize> = OnceLock::new();

/// Reads the environment; at the start, because programs such as nginx forget it later. A socket that
/// another library's constructor makes may have asked before.
pub fn read_environment() {
    settings();
}

fn resolve() -> Settings {
    let resolved = Resolved::from_environment(std::env::vars());
    for complaint in &resolved.complaints {
        let _ = kernel::write(2, format!("bypass: {complaint}\n").as_bytes());
    }
    let _ = PROFILE.set(std::env::var(PROFILE_VARIABLE).unwrap_or_default());
    let bytes = std::env::var(RING_BYTES_VARIABLE)
        .ok()
        .and_then(|text| text.parse().ok());
    let _ = RING_BYTES.set(
        bytes
            .filter(|n: &usize| n.is_power_of_two())
            .unwrap_or(16_384),
    );
    Settings::from(&resolved)
}

/// Whether this process runs as `uid` now: a worker may have changed its user since the start.
pub fn is_own(uid: u32) -> bool {
    kernel::geteuid().is_ok_and(|own| own as u32 == uid)
}

/// Whether memory may be shared with a process of `uid`: root can read ours anyway, others must be us
/// or be named by the options.
pub fn may_share_with(uid: u32) -> bool {
    uid == 0 || is_own(uid) || settings().share_with.includes(uid)
}

/// What the options say.
pub fn settings() -> &'static Settings {
    SETTINGS.get_or_init(resolve)
}

/// Size of one direction's ring.
pub fn ring_bytes() -> usize {
    let (min, max) = (
        bypass_shm::layout::RING_BYTES_MIN,
        bypass_shm::layout::RING_BYTES_MAX,
    );
    RING_BYTES.get().copied().unwrap_or(16_384).clamp(min, max)
}

/// Whether anything accelerated was ever made here.
pub fn is_started() -> bool {
    NUMBER.load(Ordering::Acquire) != 0
}

/// The process's random number; made with its page of statistics when first asked for.
pub fn number() -> u64 {
    match NUMBER.load(Ordering::Acquire) {
        0 => start(),
        number => number,
    }
}

fn start() -> u64 {
    start_as(kernel::random() | 1)
}

#[cold]
fn start_as(fresh: u64) -> u64 {
    if let Err(other) = NUMBER.compare_exchange(0, fresh, Ordering::AcqRel, Ordering::Acquire) {
        return other;
    }
    // Long spins mean few sleeps: those may be dear, so that publishing is cheap.
    let sleeps_often = !settings().epoll_spin || settings().spin_usec < 1000;
    bypass_sys::barrier::choose(sleeps_often);
    open_sender();
    let profile = PROFILE.get().map_or("", String::as_str);
    if let Ok(stats) = Stats::create(profile, &settings().cluster_name, &command()) {
        table::hide(stats.fd());
        STATS.put(stats);
    }
    fresh
}

/// The socket to wake others with; −1 when there is none to be had.
fn open_sender() -> i32 {
    let Ok(sender) = pool::or_give_back(waker::sender) else {
        return -1;
    };
    match SENDER.compare_exchange(-1, sender, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            table::hide(sender);
            sender
        }
        Err(other) => {
            let _ = kernel::close(sender);
            other
        }
    }
}

fn command() -> String {
    let mut bytes = [0u8; 64];
    let count = kernel::open(c"/proc/self/comm", libc::O_RDONLY).and_then(|fd| {
        let count = kernel::read(fd, &mut bytes);
        let _ = kernel::close(fd);
        count
    });
    String::from_utf8_lossy(&bytes[..count.unwrap_or(0)])
        .trim()
        .to_owned()
}

/// In a forked child: another process, which shares nothing of this yet.
pub fn become_child(number: u64) {
    let sender = SENDER.swap(-1, Ordering::AcqRel);
    if sender >= 0 {
        table::show(sender);
        let _ = kernel::close(sender);
    }
    thread().forget();
    NUMBER.store(0, Ordering::Release);
    start_as(number);
}

/// A waker number that this process has not used.
pub fn next_waker() -> u32 {
    WAKERS.fetch_add(1, Ordering::Relaxed) & 0x7fff_ffff
}

/// Wakes a sleeper of any process.
#[cold]
pub fn wake(process: u64, waker_number: u32) {
    if is_confined() {
        // It has been said in the segments: who waits looks by itself.
        return;
    }
    count(Counter::Wakes, 1);
    let mut sender = SENDER.load(Ordering::Acquire);
    if sender < 0 {
        // There was no descriptor for it at the start.
        sender = open_sender();
    }
    waker::wake(sender, process, waker_number);
}

/// Adds to a counter.
#[inline]
pub fn count(counter: Counter, amount: u64) {
    if let Some(stats) = STATS.get() {
        stats.add(thread().stripe(|| stats.take_stripe()), counter, amount);
    }
}

/// Counts a fallback to the kernel.
pub fn fall_back(reason: Reason) {
    if let Some(stats) = STATS.get() {
        stats.fall_back(reason);
    }
}

/// The page of statistics.
#[inline]
pub fn stats() -> Option<&'static Stats> {
    STATS.get()
}
