//! A table of the steering program, written in memory: an array map that is mapped (BPF_F_MMAPABLE).
//! The holder of its descriptor writes it without privilege and without a system call.

use core::sync::atomic::{AtomicU64, Ordering};

use bypass_sys::kernel::Result;
use bypass_sys::region::Region;

/// Words of 8 bytes.
#[derive(Debug)]
pub struct Table {
    memory: Region,
}

impl Table {
    /// Maps `words` of a map.
    pub fn map(fd: i32, words: usize) -> Result<Self> {
        Region::map(fd, 0, words * 8).map(|memory| Self { memory })
    }

    fn word(&self, index: usize) -> Option<&AtomicU64> {
        let at = self.memory.at::<AtomicU64>(index.checked_mul(8)?, 8)?;
        // SAFETY: inside the mapping and aligned; an atomic may be shared.
        Some(unsafe { &*at })
    }

    /// A word; 0 outside.
    pub fn get(&self, index: usize) -> u64 {
        self.word(index)
            .map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// Writes a word.
    pub fn set(&self, index: usize, value: u64) {
        if let Some(word) = self.word(index) {
            word.store(value, Ordering::Release);
        }
    }

    /// Replaces a word by what `change` makes of it, unless that is None; what it was.
    pub fn update(&self, index: usize, change: impl FnMut(u64) -> Option<u64>) -> u64 {
        self.word(index).map_or(0, |word| {
            word.fetch_update(Ordering::AcqRel, Ordering::Acquire, change)
                .unwrap_or_else(|unchanged| unchanged)
        })
    }
}
