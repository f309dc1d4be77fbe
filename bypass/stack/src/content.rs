//! Contents of small files that are sent again and again: private copies, so that no system call
//! and no page of a file that might shrink stands between a file and the ring.
//!
//! A copy is used only while one fstat says that device, inode, size and both times are those of
//! the moment when it was made, and it is made only of files that have rested for a while: a
//! change within the clock's resolution cannot go unseen.

use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use bypass_shm::memory::Mapping;
use bypass_shm::{clock, sys as kernel};

use crate::table;

/// Larger files are read in steps.
const FILE_BYTES_MAX: i64 = 1 << 20;
/// All copies of a process.
const TOTAL_BYTES_MAX: usize = 64 << 20;
/// How long a file must have been unchanged.
const REST_NS: i128 = 2_000_000_000;

#[derive(PartialEq, Eq, Clone, Copy)]
struct Stamp {
    size: i64,
    modified_ns: i128,
    changed_ns: i128,
}

/// What a file contained.
pub struct Content {
    /// Unlike any other content of this process; never 0.
    pub id: u32,
    /// All of it.
    pub bytes: Vec<u8>,
    /// The same in memory that can be lent; made when first wanted.
    shared: OnceLock<Option<Mapping>>,
}

impl Content {
    fn new(bytes: Vec<u8>) -> Self {
        static IDS: AtomicU32 = AtomicU32::new(1);
        Self {
            id: IDS.fetch_add(1, Ordering::Relaxed).max(1),
            bytes,
            shared: OnceLock::new(),
        }
    }

    /// A descriptor of memory with these bytes, for passing on.
    pub fn descriptor(&self) -> Option<i32> {
        let make = || {
            let memory = Mapping::of_bytes(c"wirespeed-content", &self.bytes).ok()?;
            table::hide(memory.fd());
            Some(memory)
        };
        self.shared.get_or_init(make).as_ref().map(Mapping::fd)
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        if let Some(Some(memory)) = self.shared.get() {
            table::show(memory.fd());
        }
    }
}

struct Copy {
    stamp: Stamp,
    content: Arc<Content>,
}

#[derive(Default)]
struct Copies {
    by_file: HashMap<(u64, u64), Copy>,
    total_bytes: usize,
}

static COPIES: OnceLock<Mutex<Copies>> = OnceLock::new();

/// Locks the copies across a fork.
pub fn hold() -> impl Sized {
    COPIES.get_or_init(Mutex::default).lock().ok()
}

/// The whole content of a regular file; None when it is to be read as it is.
pub fn of(file: i32) -> Option<Arc<Content>> {
    let stat = kernel::fstat(file).ok()?;
    let is_regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    if !is_regular || stat.st_size == 0 || stat.st_size > FILE_BYTES_MAX {
        return None;
    }
    let ns = |seconds: i64, ns: i64| i128::from(seconds) * 1_000_000_000 + i128::from(ns);
    let stamp = Stamp {
        size: stat.st_size,
        modified_ns: ns(stat.st_mtime, stat.st_mtime_nsec),
        changed_ns: ns(stat.st_ctime, stat.st_ctime_nsec),
    };
    let key = (stat.st_dev, stat.st_ino);
    let mut copies = COPIES.get_or_init(Mutex::default).lock().ok()?;
    if let Some(copy) = copies.by_file.get(&key).filter(|copy| copy.stamp == stamp) {
        return Some(copy.content.clone());
    }
    let rested_since = stamp.modified_ns.max(stamp.changed_ns);
    if i128::from(clock::unix_ns()) - rested_since < REST_NS {
        return None;
    }
    let content = Arc::new(Content::new(read_whole(file, stat.st_size as usize)?));
    copies.insert(
        key,
        Copy {
            stamp,
            content: content.clone(),
        },
    );
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
    fn insert(&mut self, key: (u64, u64), copy: Copy) {
        if self.total_bytes + copy.content.bytes.len() > TOTAL_BYTES_MAX {
            self.by_file.clear();
            self.total_bytes = 0;
        }
        self.total_bytes += copy.content.bytes.len();
        if let Some(former) = self.by_file.insert(key, copy) {
            self.total_bytes -= former.content.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_changed_file_is_read_again_and_a_fresh_one_is_not_kept() {
        let path = std::env::temp_dir().join(format!("wirespeed-content-{}", std::process::id()));
        std::fs::write(&path, b"first").expect("written");
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .expect("open");
        // Changed just now: not trusted yet.
        assert!(of(file.as_raw_fd()).is_none());
        let long_ago = SystemTime::now() - Duration::from_secs(100);
        file.set_modified(long_ago).expect("time set");
        // The change of the time itself counts too.
        assert!(of(file.as_raw_fd()).is_none());
        let mut other = &file;
        other.write_all(b"other").expect("written");
        assert!(of(file.as_raw_fd()).is_none());
        std::fs::remove_file(&path).expect("removed");
    }
}
