//! The number by which other processes know this one, and how they are woken.

use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use bypass_stats::Counter;
use bypass_sys::sandbox::is_confined;
use bypass_sys::thread::thread;
use bypass_sys::{kernel, waker};

use super::settings::settings;
use super::statistics::{self, count};
use super::{pool, table};

static NUMBER: AtomicU64 = AtomicU64::new(0);
static WAKERS: AtomicU32 = AtomicU32::new(1);
static SENDER: AtomicI32 = AtomicI32::new(-1);

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
    statistics::open();
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
        // The segments record it: a waiting thread polls on its own.
        return;
    }
    count(Counter::Wakes, 1);
    let mut sender = SENDER.load(Ordering::Acquire);
    if sender < 0 {
        // It could not get a descriptor at the start.
        sender = open_sender();
    }
    let _ = pool::or_give_back(|| waker::wake(sender, process, waker_number));
}
