//! Descriptors that are kept for the next socket: a connection then costs no system call.
//!
//! Only clean shadows are kept: as socket(2) made them, close-on-exec, never bound.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock};

use bypass_stats::Counter;
use bypass_sys::sandbox::is_confined;
use bypass_sys::{kernel, numbers};

use super::later;
use super::ports;
use super::settings::settings;
use super::statistics::count;
use super::table::{self, Entry, Kind};

/// The soft limit of descriptors; 0 when it has to be asked for.
static LIMIT: AtomicUsize = AtomicUsize::new(0);

/// A standard number has been closed, or was at the start: the next socket may have to take it.
static MAY_BE_FREE: AtomicBool = AtomicBool::new(true);

/// Lowest first, as the kernel would give them.
type Shelf = BTreeSet<i32>;

static POOL: [Mutex<Shelf>; 2] = [const { Mutex::new(Shelf::new()) }; 2];

fn shelf(family: i32) -> &'static Mutex<Shelf> {
    &POOL[usize::from(family == libc::AF_INET6)]
}

fn limit() -> usize {
    match LIMIT.load(Ordering::Relaxed) {
        0 => {
            let limit = kernel::descriptor_limit();
            LIMIT.store(limit, Ordering::Relaxed);
            limit
        }
        limit => limit,
    }
}

/// The program may have changed its limit of descriptors.
pub fn limit_changed() {
    LIMIT.store(0, Ordering::Relaxed);
    empty();
}

/// Numbers below are for select(2), too.
const SELECTABLE: i32 = libc::FD_SETSIZE as i32;
/// They are kept as long as fewer than so many numbers are: a program that uses select needs the rest for its files.
const SELECTABLE_KEPT: usize = 256;

/// Whether one more number may be kept. A quarter of the limit at most, and none of its highest
/// quarter: a number as high as that was given out because most below are in use.
fn has_place(fd: i32, shelf: &Shelf) -> bool {
    let quarter = limit() / 4;
    let is_spare = fd >= SELECTABLE || shelf.len() < SELECTABLE_KEPT;
    shelf.len() < settings().socket_cache_max.min(quarter)
        && (fd as usize) < 3 * quarter
        && is_spare
}

/// The limit of descriptors counts for the program: before a call fails for it, the pool gives its numbers back.
pub fn or_give_back<T>(make: impl Fn() -> Result<T, i32>) -> Result<T, i32> {
    match make() {
        Err(libc::EMFILE | libc::ENFILE) if give_back() > 0 => make(),
        made => made,
    }
}

/// The same for a descriptor of the program's, which fails only if the limit is reached while the service
/// thread sleeps.
pub fn for_program<T>(make: impl Fn() -> Result<T, i32>) -> Result<T, i32> {
    let is_short = |made: &Result<T, i32>| matches!(made, Err(libc::EMFILE | libc::ENFILE));
    let made = or_give_back(&make);
    if is_short(&made) {
        return later::beside_service(made, is_short, make);
    }
    made
}

/// `fd` was closed. Programs close standard numbers for others to take them.
pub fn closed(fd: i32) {
    if fd <= libc::STDERR_FILENO {
        MAY_BE_FREE.store(true, Ordering::Relaxed);
    }
}

fn is_standard_free() -> bool {
    if !MAY_BE_FREE.load(Ordering::Relaxed) || is_confined() {
        return false;
    }
    MAY_BE_FREE.store(false, Ordering::Relaxed);
    let is_free = |fd| kernel::fcntl(fd, libc::F_GETFD, 0) == Err(libc::EBADF);
    let is_one_free = (libc::STDIN_FILENO..=libc::STDERR_FILENO).any(is_free);
    if is_one_free {
        MAY_BE_FREE.store(true, Ordering::Relaxed);
    }
    is_one_free
}

/// A clean TCP socket of `family`, from the pool or from the kernel.
pub fn take(family: i32) -> Result<i32, i32> {
    if !is_standard_free() {
        if let Some(fd) = take_kept(family) {
            count(Counter::PoolHits, 1);
            return Ok(fd);
        }
    }
    count(Counter::PoolMisses, 1);
    for_program(|| make(family))
}

/// One of `family` that is kept; None where none is.
fn take_kept(family: i32) -> Option<i32> {
    shelf(family).lock().ok()?.pop_first()
}

/// Whether [`take`] needs no system call.
pub fn has_kept(family: i32) -> bool {
    shelf(family).lock().is_ok_and(|shelf| !shelf.is_empty())
}

/// Keeps at least `count` sockets of `family`, as far as they can be had.
pub fn provide(family: i32, count: usize) {
    while shelf(family).lock().is_ok_and(|shelf| shelf.len() < count) {
        let Ok(fd) = make(family) else { return };
        table::set(fd, Entry::new(Kind::Pooled, 0, 0));
        if let Ok(mut shelf) = shelf(family).lock() {
            shelf.insert(fd);
        }
    }
}

fn make(family: i32) -> Result<i32, i32> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let _holding = numbers::hold();
    kernel::socket(family, kind, 0).map(|fd| fd as i32)
}

/// Keeps or closes the shadow of a socket that the program has closed; its entry is `Pooled`. One that is
/// not as socket(2) made it is closed, and one with a standard number.
pub fn give(fd: i32, family: i32, is_clean: bool) {
    if is_clean && fd > libc::STDERR_FILENO && !is_confined() {
        if let Ok(mut shelf) = shelf(family).lock() {
            if has_place(fd, &shelf) {
                shelf.insert(fd);
                return;
            }
        }
    }
    table::set(fd, Entry::KERNEL);
    let _ = kernel::close(fd);
    closed(fd);
}

/// Closes what is kept; says how many.
pub fn empty() -> usize {
    let mut closed = 0;
    for shelf in &POOL {
        let fds = shelf
            .lock()
            .map(|mut shelf| std::mem::take(&mut *shelf))
            .unwrap_or_default();
        for fd in fds {
            if table::get(fd).kind() == Kind::Pooled {
                table::set(fd, Entry::KERNEL);
                let _ = kernel::close(fd);
                closed += 1;
            }
        }
    }
    closed
}

/// In a forked child, after [`empty`]: a thread of the parent was about to keep or to close these numbers, or to give them
/// to the program. They mean nothing here, and the kernel's sockets behind them may listen.
pub fn close_left_over() {
    for fd in (0..table::used()).filter(|fd| table::get(*fd).kind() == Kind::Pooled) {
        table::set(fd, Entry::KERNEL);
        let _ = kernel::close(fd);
        closed(fd);
    }
}

/// Closes all that the program has no use of, before it would have no descriptor; says how many.
pub fn give_back() -> usize {
    let spare = SPARE.get().map_or(0, |give_back| give_back());
    empty() + ports::give_up() + usize::from(later::finish()) + spare
}

/// How those above give back what they keep.
static SPARE: OnceLock<fn() -> usize> = OnceLock::new();

/// Says how; it is not to wait for any lock.
pub fn provide_spare(give_back: fn() -> usize) {
    let _ = SPARE.set(give_back);
}

/// Locks the pool across a fork.
pub fn hold() -> impl Sized {
    POOL.each_ref().map(|shelf| shelf.lock().ok())
}

/// Takes a particular number out of the pool, because dup2 or the like is about to use it.
pub fn remove(fd: i32) {
    for shelf in &POOL {
        if let Ok(mut shelf) = shelf.lock() {
            shelf.retain(|kept| *kept != fd);
        }
    }
    table::set(fd, Entry::KERNEL);
}
