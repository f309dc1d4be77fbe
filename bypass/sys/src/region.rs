//! Memory mapped from a kernel descriptor: rings, and frames shared with a device.

use core::ptr::NonNull;

use crate::kernel::{self, Result};

/// A mapping that is undone when dropped. It does not keep the descriptor.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: a region is memory without owner; code that makes references into it must uphold their safety.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `length` bytes of `fd` from `offset` on, shared, readable and writable, and populates
    /// the pages now, so that none faults later.
    pub fn map(fd: i32, offset: u64, length: usize) -> Result<Self> {
        let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        let flags = (libc::MAP_SHARED | libc::MAP_POPULATE) as usize;
        let arguments = [0, length, access, flags, fd as usize, offset as usize];
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other memory.
        let at = kernel::check(unsafe { kernel::raw(libc::SYS_mmap, arguments) })?;
        let base = NonNull::new(at as *mut u8).ok_or(libc::ENOMEM)?;
        // Frames of packets do not explain a crash, and there are many.
        let advice = [at, length, libc::MADV_DONTDUMP as usize, 0, 0, 0];
        // SAFETY: it changes what a core dump holds, and nothing here.
        let _ = unsafe { kernel::raw(libc::SYS_madvise, advice) };
        Ok(Self { base, length })
    }

    /// Whether forked children inherit the mapping, and with it a reference to its file.
    pub fn keep_from_children(&self, is_kept: bool) {
        let advice = match is_kept {
            true => libc::MADV_DONTFORK,
            false => libc::MADV_DOFORK,
        };
        let arguments = [self.base(), self.length, advice as usize, 0, 0, 0];
        // SAFETY: it changes what a later fork does, and nothing here.
        let _ = unsafe { kernel::raw(libc::SYS_madvise, arguments) };
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing is mapped.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Where the mapping begins.
    pub fn base(&self) -> usize {
        self.base.as_ptr() as usize
    }

    /// Address of `length` bytes at `offset`, aligned for `T`; None when they are outside.
    pub fn at<T>(&self, offset: usize, length: usize) -> Option<*mut T> {
        let is_inside = offset.checked_add(length)? <= self.length;
        let is_aligned = offset.is_multiple_of(align_of::<T>());
        // SAFETY: in bounds as just checked; the base is aligned to a page.
        (is_inside && is_aligned).then(|| unsafe { self.base.as_ptr().add(offset) }.cast())
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let arguments = [self.base(), self.length, 0, 0, 0, 0];
        // SAFETY: this mapping is owned, and nothing borrows from it.
        let _ = unsafe { kernel::raw(libc::SYS_munmap, arguments) };
    }
}
