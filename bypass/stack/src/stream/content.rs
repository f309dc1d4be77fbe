//! Contents of small files that are sent again and again: private copies, so that no system call
//! and no page of a file that might shrink stands between a file and the ring.
//!
//! A copy is used only while one fstat says that device, inode, size and both times are those of
//! the moment when it was made, and it is made only of files that have rested for a while: a
//! change within the clock's resolution cannot go unseen.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bypass_sys::memory::Mapping;
use bypass_sys::{clock, kernel};

use crate::process::table;
use crate::process::wakers::LEFT_TO_PROGRAM;
use crate::sys::{Owned, OwnedGuard};

/// Larger files are read in steps.
const FILE_BYTES_MAX: i64 = 1 << 20;
/// All copies of a process.
const TOTAL_BYTES_MAX: usize = 64 << 20;
/// How long a file must have been unchanged.
const REST_NS: i128 = 2_000_000_000;

/// Identifies one state of a file, by fstat: files with equal stamps are the same and were not written to in between.
#[derive(PartialEq, Eq, Clone, Copy)]
struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// Likewise.
    changed: (i64, i64),
}

impl Stamp {
    /// None of files that are not kept.
    #[inline]
    fn of(file: i32) -> Option<Self> {
        let stat = kernel::fstat(file).ok()?;
        let is_regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        let is_kept = is_regular && (1..=FILE_BYTES_MAX).contains(&stat.st_size);
        is_kept.then_some(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
        })
    }

    fn rested_since_ns(&self) -> i128 {
        let (seconds, ns) = self.modified.max(self.changed);
        i128::from(seconds) * 1_000_000_000 + i128::from(ns)
    }
}

/// What a file contained.
pub struct Content {
    /// Unlike any other content of this process; never 0.
    pub id: u32,
    stamp: Stamp,
    /// All of it.
    pub bytes: Vec<u8>,
    /// The same bytes in memory that can be passed to the other side, as long as it is kept.
    shared: Mutex<Option<Arc<Shared>>>,
}

/// A content's bytes in memory that can be passed on, by its descriptor. The other side keeps its mapping without it.
pub struct Shared(Mapping);

/// So many of them are kept: one more descriptor of the program's each.
const KEPT_MAX: usize = 64;
static KEPT: AtomicUsize = AtomicUsize::new(0);

impl Shared {
    fn new(bytes: &[u8]) -> Option<Arc<Self>> {
        if !kernel::has_descriptors_left(LEFT_TO_PROGRAM) {
            return None;
        }
        let memory = Mapping::of_bytes(c"wirespeed-content", bytes).ok()?;
        table::hide(memory.fd());
        KEPT.fetch_add(1, Ordering::Relaxed);
        Some(Arc::new(Self(memory)))
    }

    /// The descriptor, for passing on.
    pub fn fd(&self) -> i32 {
        self.0.fd()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
        table::show(self.0.fd());
    }
}

impl Content {
    fn new(stamp: Stamp, bytes: Vec<u8>) -> Self {
        static IDS: AtomicU32 = AtomicU32::new(1);
        Self {
            id: IDS.fetch_add(1, Ordering::Relaxed).max(1),
            stamp,
            bytes,
            shared: Mutex::default(),
        }
    }

    /// Memory with these bytes, for passing on. Where many contents have some already it is for this once.
    pub fn share(&self) -> Option<Arc<Shared>> {
        // In a forked child it may be locked for ever: the bytes are copied then.
        let mut shared = self.shared.try_lock().ok()?;
        if let Some(kept) = &*shared {
            return Some(kept.clone());
        }
        let made = Shared::new(&self.bytes)?;
        if KEPT.load(Ordering::Relaxed) <= KEPT_MAX {
            *shared = Some(made.clone());
        }
        Some(made)
    }
}

/// Closes what is kept for the next client, where the program would have no descriptor; says how many.
pub fn give_descriptors_back() -> usize {
    let kept = |content: &Arc<Content>| content.shared.try_lock().ok()?.take();
    let Some(copies) = COPIES.get().and_then(|copies| copies.try_lock().ok()) else {
        return 0;
    };
    let taken: Vec<_> = copies.by_file.values().filter_map(kept).collect();
    taken.len()
}

#[derive(Default)]
struct Copies {
    by_file: HashMap<(u64, u64), Arc<Content>>,
    total_bytes: usize,
}

static COPIES: OnceLock<Mutex<Copies>> = OnceLock::new();

/// Places for the contents that were sent last, by descriptor modulo this.
const RECENT: usize = 64;

/// A copy that is kept at hand; whoever sends it takes it out meanwhile, so that no count of
/// references, a locked operation, goes up and down with each answer.
struct Recent {
    stamp: Stamp,
    content: Option<Arc<Content>>,
}

static AT_HAND: Owned<[Option<Recent>; RECENT]> = Owned::new([const { None }; RECENT]);

fn at_hand() -> OwnedGuard<'static, [Option<Recent>; RECENT]> {
    AT_HAND.lock(|mutex| mutex.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Locks the copies across a fork.
pub fn hold() -> impl Sized {
    (copies(), at_hand())
}

/// The whole content of a regular file, to be [given back](give_back); None when it is to be read as
/// it is.
#[inline]
pub fn take(file: i32) -> Option<Arc<Content>> {
    let stamp = Stamp::of(file)?;
    if let Some(recent) = &mut at_hand()[file as usize % RECENT] {
        if recent.stamp == stamp && recent.content.is_some() {
            return recent.content.take();
        }
    }
    find(file, stamp)
}

/// The content that was [taken](take) for `file` is not in use any more.
#[inline]
pub fn give_back(file: i32, content: Arc<Content>) {
    let former = match &mut at_hand()[file as usize % RECENT] {
        Some(recent) if recent.content.is_none() && recent.stamp == content.stamp => {
            recent.content.replace(content)
        }
        place => {
            let stamp = content.stamp;
            let content = Some(content);
            place
                .replace(Recent { stamp, content })
                .and_then(|recent| recent.content)
        }
    };
    // Not under the lock: it may be the last reference, which closes a descriptor.
    drop(former);
}

#[cold]
fn find(file: i32, stamp: Stamp) -> Option<Arc<Content>> {
    if !is_readable(file) {
        return None;
    }
    find_or_read(stamp, |size| read_whole(file, size))
}

/// Whether the file behind a descriptor could be read through it.
fn is_readable(file: i32) -> bool {
    kernel::fcntl(file, libc::F_GETFL, 0).is_ok_and(|flags| {
        let flags = flags as i32;
        flags & libc::O_ACCMODE != libc::O_WRONLY && flags & libc::O_PATH == 0
    })
}

fn copies() -> Option<MutexGuard<'static, Copies>> {
    COPIES.get_or_init(Mutex::default).lock().ok()
}

/// Reads without the lock: a slow file system must not delay threads that send another file, or fork.
fn find_or_read(stamp: Stamp, read: impl FnOnce(usize) -> Option<Vec<u8>>) -> Option<Arc<Content>> {
    let key = (stamp.device, stamp.inode);
    let known = copies()?.by_file.get(&key).cloned();
    if let Some(content) = known.filter(|content| content.stamp == stamp) {
        return Some(content);
    }
    if i128::from(clock::unix_ns()) - stamp.rested_since_ns() < REST_NS {
        return None;
    }
    let content = Arc::new(Content::new(stamp, read(stamp.size as usize)?));
    copies()?.insert(key, content.clone());
    Some(content)
}

fn read_whole(file: i32, size: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0u8; size];
    let mut done = 0;
    while done < size {
        match kernel::read_at(file, &mut bytes[done..], done as i64) {
            Ok(0) | Err(_) => return None,
            Ok(count) => done += count,
        }
    }
    Some(bytes)
}

impl Copies {
    fn insert(&mut self, key: (u64, u64), content: Arc<Content>) {
        if self.total_bytes + content.bytes.len() > TOTAL_BYTES_MAX {
            self.by_file.clear();
            at_hand().fill_with(|| None);
            self.total_bytes = 0;
        }
        self.total_bytes += content.bytes.len();
        if let Some(former) = self.by_file.insert(key, content) {
            self.total_bytes -= former.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::time::{Duration, Instant, SystemTime};

    /// Just after a change: a machine that stands still in between lets the file rest.
    fn is_read_as_it_is(file: &std::fs::File, change: impl Fn(&std::fs::File)) -> bool {
        loop {
            let begun = Instant::now();
            change(file);
            let is_read = take(file.as_raw_fd()).is_none();
            if i128::from(begun.elapsed().as_nanos() as u64) < REST_NS {
                return is_read;
            }
        }
    }

    #[test]
    fn a_changed_file_is_read_again_and_a_fresh_one_is_not_kept() {
        let path = std::env::temp_dir().join(format!("wirespeed-content-{}", std::process::id()));
        std::fs::write(&path, b"first").expect("written");
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .expect("open");
        let write = |mut file: &std::fs::File| file.write_all(b"other").expect("written");
        // Changed just now: not trusted yet.
        assert!(is_read_as_it_is(&file, write));
        let long_ago = SystemTime::now() - Duration::from_secs(100);
        let date_back = |file: &std::fs::File| file.set_modified(long_ago).expect("time set");
        // The change of the time itself counts too.
        assert!(is_read_as_it_is(&file, date_back));
        assert!(is_read_as_it_is(&file, write));
        std::fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn others_may_look_while_a_file_is_read() {
        let path = std::env::temp_dir().join(format!("wirespeed-slow-{}", std::process::id()));
        std::fs::write(&path, b"slow").expect("written");
        let file = std::fs::File::open(&path).expect("open");
        let mut stamp = Stamp::of(file.as_raw_fd()).expect("a regular file");
        (stamp.modified, stamp.changed) = ((0, 0), (0, 0));
        let mut was_free = false;
        let read = |_| {
            // Another test may look there at the moment.
            let is_free = |_| COPIES.get().is_some_and(|copies| copies.try_lock().is_ok());
            was_free = (0..100_000_000).any(is_free);
            Some(b"slow".to_vec())
        };
        assert!(find_or_read(stamp, read).is_some() && was_free);
        std::fs::remove_file(&path).expect("removed");
    }
}
