//! Numbers of descriptors: the low ones are the program's.
//!
//! The kernel gives the lowest number that is free, and programs rely on it: shells close a number and fill it again,
//! daemons close all that could be open. No descriptor can be made with a high number. So while one of ours has a low
//! one, for two system calls, the program's calls that take numbers wait, and what nobody can wait for is put right.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::descriptor::Owned;
use crate::kernel::Result;
use crate::sandbox::is_confined;
use crate::{clock, kernel};

/// How much of a folder is read at once.
const ENTRIES_BYTES: usize = 4096;

/// 1 while somebody takes low numbers. No thread's number, as of other locks: a program in a sandbox that it was
/// started in may not even ask for it.
static TAKING: AtomicU32 = AtomicU32::new(0);
/// How often one of ours has had a low number.
static TIMES: AtomicU32 = AtomicU32::new(0);

/// Longest wait for whoever takes numbers: a child that was made behind our back may find them held for ever.
const WAIT_NS_MAX: u64 = 2_000_000_000;
/// Between two looks no more than this counts: in the rest of the time the whole process did not run.
const LOOK_NS_MAX: u64 = 10_000_000;
/// Looks before the processor is given up.
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

/// As long as it lives, no other thread takes numbers. Nothing that may wait for anything, memory included, is done
/// meanwhile.
pub fn hold() -> Holding {
    if !try_hold() {
        wait();
    }
    Holding(())
}

#[inline]
fn try_hold() -> bool {
    let taken = TAKING.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
    taken.is_ok()
}

#[cold]
fn wait() {
    let (mut looked_ns, mut waited_ns, mut spins) = (clock::now_ns(), 0, 0);
    while !try_hold() && waited_ns < WAIT_NS_MAX {
        core::hint::spin_loop();
        spins += 1;
        if spins > SPINS && !is_confined() {
            kernel::let_others_run(spins - SPINS);
        }
        let now_ns = clock::now_ns();
        waited_ns += now_ns.saturating_sub(looked_ns).min(LOOK_NS_MAX);
        looked_ns = now_ns;
    }
}

/// Runs `work`, in which a descriptor of ours has a low number.
pub fn low<T>(work: impl FnOnce() -> T) -> T {
    let _holding = hold();
    TIMES.fetch_add(1, Ordering::SeqCst);
    work()
}

/// Makes a descriptor of ours, close-on-exec. `make` must not wait for what another thread of the program does.
pub fn high<T: TryInto<i32>>(make: impl FnOnce() -> Result<T>) -> Result<Owned> {
    low(|| move_high(make()?.try_into().map_err(|_| libc::EBADF)?))
}

/// Two of them.
pub fn high_pair(make: impl FnOnce(&mut [i32; 2]) -> Result<usize>) -> Result<[Owned; 2]> {
    low(|| {
        let mut fds = [-1; 2];
        make(&mut fds)?;
        let [first, second] = fds.map(move_high);
        Ok([first?, second?])
    })
}

/// Another number for what is open as `fd`, close-on-exec.
pub fn duplicate(fd: i32) -> Result<Owned> {
    match kernel::fcntl(fd, libc::F_DUPFD_CLOEXEC, high_base()) {
        Ok(made) => Ok(Owned(made as i32)),
        Err(_) => high(|| kernel::dup(fd)),
    }
}

/// A descriptor that has just been made, with a high number where there is one left. Within [`low`].
pub fn move_high(fd: i32) -> Result<Owned> {
    let low = Owned(fd);
    match kernel::fcntl(fd, libc::F_DUPFD_CLOEXEC, high_base()) {
        Ok(made) => Ok(Owned(made as i32)),
        Err(_) => kernel::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC as usize).map(|_| low),
    }
}

/// All descriptors of the process, but the one that they are looked for by.
pub fn all() -> Result<Vec<i32>> {
    listed(c"/proc/self/fd")
}

/// The numbers that a folder of /proc lists, but the descriptor by which it is read.
pub fn listed(folder: &core::ffi::CStr) -> Result<Vec<i32>> {
    let folder = high(|| kernel::open(folder, libc::O_RDONLY | libc::O_DIRECTORY))?;
    let mut found = Vec::new();
    let mut entries = [0; ENTRIES_BYTES];
    loop {
        let count = kernel::read_folder(folder.0, &mut entries)?;
        if count == 0 {
            break;
        }
        found.extend(names(&entries[..count]).filter_map(|name| name.parse::<i32>().ok()));
    }
    found.retain(|fd| *fd != folder.0);
    Ok(found)
}

/// The names in what getdents64(2) has written: each entry says its length in two bytes behind the first 16, and its
/// name from the 20th on, with NUL behind it.
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

/// Whether somebody is just taking a low number.
#[inline]
pub fn are_held() -> bool {
    TAKING.load(Ordering::Acquire) != 0
}

/// What [`were_free`] is to be told; None when a low number is just being taken.
#[inline]
pub fn look() -> Option<u32> {
    let times = TIMES.load(Ordering::Acquire);
    (!are_held()).then_some(times)
}

/// Whether none of ours has had a low number since that look.
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
    fn all_that_is_open_is_found() {
        let many: Vec<Owned> = (0..200)
            .map(|_| high(|| kernel::memfd_create(c"one of many")).expect("a file"))
            .collect();
        let found = all().expect("/proc");
        let times = |fd| found.iter().filter(|one| **one == fd).count();
        assert!(many.iter().all(|one| times(one.0) == 1));
    }

    #[test]
    fn an_error_of_the_making_is_told() {
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
                // Load and store, not one step: only the holding keeps the sum right.
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
    fn a_low_number_is_noticed_by_who_did_not_wait() {
        let seen = low(look);
        assert!(seen.is_none() && !were_free(seen));
        // Other tests of this process take numbers too.
        let before = TIMES.load(Ordering::SeqCst);
        low(|| ());
        assert!(!were_free(Some(before)));
    }
}
