//! Descriptor numbers: the low ones are reserved for the program.
//!
//! The kernel returns the lowest free number, and programs rely on it: shells close a number and
//! reuse it, daemons close every possible one. The kernel cannot create a descriptor with a high
//! number. So while a descriptor of the library has a low number, for two system calls, the
//! program's calls that take numbers wait, and effects on calls that cannot wait are repaired.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::clock::Waited;
use crate::descriptor::Owned;
use crate::kernel::{self, Result};
use crate::sandbox::is_confined;

/// How much of a directory is read at once.
const ENTRIES_BYTES: usize = 4096;

/// 1 while a thread takes low numbers. Unlike other locks it holds no thread number: a program that
/// was started in a sandbox may not even be allowed to ask for it.
static TAKING: AtomicU32 = AtomicU32::new(0);
/// How often a descriptor of the library has had a low number.
static TIMES: AtomicU32 = AtomicU32::new(0);

/// How many threads are in a call that closes numbers, of which none of the library's may be one.
static CLOSING: AtomicU32 = AtomicU32::new(0);
/// Longest wait for them: a close can wait itself (SO_LINGER), and a thread can end in it.
const CLOSE_NS_MAX: u64 = 100_000_000;

/// Longest wait for the thread that takes numbers: a child created without the library's knowledge
/// may inherit the lock held forever.
const WAIT_NS_MAX: u64 = 2_000_000_000;
/// Checks before the thread yields.
const SPINS: u32 = 200;

/// Lets others take numbers when dropped.
#[must_use]
#[derive(Debug)]
pub struct Holding(());

impl Drop for Holding {
    fn drop(&mut self) {
        TAKING.store(0, Ordering::Release);
    }
}

/// While it exists, no other thread takes numbers. Its holder does nothing that may wait, not even
/// for memory.
pub fn hold() -> Holding {
    if !try_hold() {
        wait();
    }
    Holding(())
}

#[inline]
fn try_hold() -> bool {
    // SeqCst: of a thread that takes low numbers and one that closes, one sees the other.
    let taken = TAKING.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed);
    taken.is_ok()
}

#[cold]
fn wait() {
    let (mut waited, mut spins) = (Waited::begin(), 0);
    while !try_hold() && waited.look_ns() < WAIT_NS_MAX {
        core::hint::spin_loop();
        spins += 1;
        if spins > SPINS && !is_confined() {
            kernel::let_others_run(spins - SPINS);
        }
    }
}

/// Runs `work`, in which a descriptor of the library has a low number.
pub fn low<T>(work: impl FnOnce() -> T) -> T {
    let _holding = hold();
    if CLOSING.load(Ordering::SeqCst) != 0 {
        await_closes();
    }
    TIMES.fetch_add(1, Ordering::SeqCst);
    work()
}

/// Runs a call of the program that closes numbers, open or not: programs close all there could be.
/// No descriptor of the library has a low number meanwhile, unless the call takes very long.
pub fn closing<T>(close: impl FnOnce() -> T) -> T {
    loop {
        let closing = Closing::enter();
        if !are_held() {
            return close();
        }
        drop(closing);
        drop(hold());
    }
}

/// Counted in `CLOSING`, also where the thread is cancelled in the call.
struct Closing(());

impl Closing {
    fn enter() -> Self {
        CLOSING.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let less = |count: u32| count.checked_sub(1);
        let _ = CLOSING.fetch_update(Ordering::Release, Ordering::Relaxed, less);
    }
}

/// In a forked child: the threads that close are its parent's.
pub fn forget_closes() {
    CLOSING.store(0, Ordering::SeqCst);
}

/// What does not end soon is not waited for again.
#[cold]
fn await_closes() {
    let (mut waited, mut spins) = (Waited::begin(), 0);
    while CLOSING.load(Ordering::SeqCst) != 0 {
        core::hint::spin_loop();
        spins += 1;
        if spins > SPINS && !is_confined() {
            kernel::let_others_run(spins - SPINS);
        }
        if waited.look_ns() > CLOSE_NS_MAX {
            forget_closes();
        }
    }
}

/// Creates a descriptor of the library, close-on-exec. `make` must not wait for another thread of
/// the program.
pub fn high<T: TryInto<i32>>(make: impl FnOnce() -> Result<T>) -> Result<Owned> {
    low(|| move_high(make()?.try_into().map_err(|_| libc::EBADF)?))
}

/// Creates two.
pub fn high_pair(make: impl FnOnce(&mut [i32; 2]) -> Result<usize>) -> Result<[Owned; 2]> {
    low(|| {
        let mut fds = [-1; 2];
        make(&mut fds)?;
        let [first, second] = fds.map(move_high);
        Ok([first?, second?])
    })
}

/// Another number for the file open as `fd`, close-on-exec.
pub fn duplicate(fd: i32) -> Result<Owned> {
    match kernel::fcntl(fd, libc::F_DUPFD_CLOEXEC, high_base()) {
        Ok(made) => Ok(Owned(made as i32)),
        Err(_) => high(|| kernel::dup(fd)),
    }
}

/// Moves a new descriptor to a high number if one is free. Within [`low`].
pub fn move_high(fd: i32) -> Result<Owned> {
    let low = Owned(fd);
    match kernel::fcntl(fd, libc::F_DUPFD_CLOEXEC, high_base()) {
        Ok(made) => Ok(Owned(made as i32)),
        Err(_) => kernel::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize).map(|_| low),
    }
}

/// All descriptors of the process, except the one used to list them.
pub fn all() -> Result<Vec<i32>> {
    listed(c"/proc/self/fd")
}

/// The numbers that a folder of /proc lists, but the descriptor by which it is read.
pub fn listed(folder: &core::ffi::CStr) -> Result<Vec<i32>> {
    let mut found = Vec::new();
    let own = each_name(folder, |name| found.extend(name.parse::<i32>()))?;
    found.retain(|fd| *fd != own);
    Ok(found)
}

/// Calls `each` with the names in a folder; the number by which it was read, which is closed.
pub fn each_name(folder: &core::ffi::CStr, mut each: impl FnMut(&str)) -> Result<i32> {
    let folder = high(|| kernel::open(folder, libc::O_RDONLY | libc::O_DIRECTORY))?;
    let mut entries = [0; ENTRIES_BYTES];
    loop {
        let count = kernel::read_folder(folder.0, &mut entries)?;
        if count == 0 {
            return Ok(folder.0);
        }
        names(&entries[..count]).for_each(&mut each);
    }
}

/// The names in the output of getdents64(2): each entry has its length in two bytes after the first
/// 16, and its name from the 20th on, NUL-terminated.
fn names(mut entries: &[u8]) -> impl Iterator<Item = &str> {
    core::iter::from_fn(move || {
        let length = u16::from_ne_bytes(*entries.get(16..)?.first_chunk()?);
        let (entry, rest) = entries.split_at_checked(usize::from(length).max(1))?;
        entries = rest;
        let name = core::ffi::CStr::from_bytes_until_nul(entry.get(19..)?).ok()?;
        Some(name.to_str().unwrap_or_default())
    })
}

/// Low enough to keep the kernel's descriptor table small, high enough to be out of the way.
fn high_base() -> usize {
    let soft = kernel::descriptor_limit().clamp(64, 8192);
    soft - soft / 8
}

/// Whether a thread is taking a low number.
#[inline]
pub fn are_held() -> bool {
    TAKING.load(Ordering::SeqCst) != 0
}

/// The argument for [`were_free`]; None while a low number is being taken.
#[inline]
pub fn look() -> Option<u32> {
    let times = TIMES.load(Ordering::Acquire);
    (!are_held()).then_some(times)
}

/// Whether no descriptor of the library has had a low number since that check.
#[inline]
pub fn were_free(look: Option<u32>) -> bool {
    look == Some(TIMES.load(Ordering::Acquire))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(fd: i32) -> u64 {
        kernel::fstat(fd).expect("open").st_ino
    }

    #[test]
    fn what_is_made_gets_a_high_number_and_is_closed_on_exec() {
        let made = high(|| kernel::memfd_create(c"made")).expect("a file");
        let again = duplicate(made.0).expect("another number");
        for fd in [made.0, again.0] {
            assert!(fd as usize >= high_base());
            let flags = kernel::fcntl(fd, libc::F_GETFD, 0).expect("open");
            assert_eq!(flags as i32 & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        }
        assert_eq!(inode(made.0), inode(again.0));
    }

    #[test]
    fn every_open_descriptor_is_found() {
        let many: Vec<Owned> = (0..200)
            .map(|_| high(|| kernel::memfd_create(c"one of many")).expect("a file"))
            .collect();
        let found = all().expect("/proc");
        let times = |fd| found.iter().filter(|one| **one == fd).count();
        assert!(many.iter().all(|one| times(one.0) == 1));
    }

    #[test]
    fn an_error_of_the_creating_call_is_returned() {
        assert_eq!(
            high(|| kernel::socket(-1, 0, 0)).err(),
            Some(libc::EAFNOSUPPORT)
        );
    }

    #[test]
    fn threads_take_numbers_one_at_a_time() {
        let count = AtomicU32::new(0);
        let add = || {
            for _ in 0..10_000 {
                let _holding = hold();
                // Load and store separately: only the lock keeps the sum right.
                count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|_| {
                scope.spawn(add);
            });
        });
        assert_eq!(count.load(Ordering::Relaxed), 40_000);
    }

    #[test]
    fn numbers_are_closed_when_none_is_low() {
        let (is_low, was_low) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let closing =
                || was_low.store(closing(|| is_low.load(Ordering::SeqCst)), Ordering::SeqCst);
            low(|| {
                is_low.store(1, Ordering::SeqCst);
                scope.spawn(closing);
                std::thread::sleep(std::time::Duration::from_millis(20));
                is_low.store(0, Ordering::SeqCst);
            });
        });
        assert_eq!(was_low.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_close_that_waits_is_not_waited_for_for_ever() {
        assert_eq!(closing(|| low(|| 7)), 7);
        assert!(
            CLOSING.load(Ordering::SeqCst) < 1000,
            "counted down once only"
        );
    }

    #[test]
    fn a_low_number_is_noticed_without_waiting() {
        let seen = low(look);
        assert!(seen.is_none() && !were_free(seen));
        // Other tests of this process take numbers too.
        let before = TIMES.load(Ordering::SeqCst);
        low(|| ());
        assert!(!were_free(Some(before)));
    }
}
