//! The atomics and the copy of rings and doorbells, named here so that `tests/models` can put
//! loom's in their place and run the same code under every order of memory operations.

pub(crate) use core::sync::atomic::{fence, AtomicU32, AtomicU64, AtomicU8, Ordering};

pub(crate) use crate::barrier::{heavy, light};

/// Copies into a ring.
///
/// # Safety
/// `from` must be readable and `ring` writable for `length` bytes, and they must not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_in(from: *const u8, ring: *mut u8, length: usize) {
    // SAFETY: the caller vouches for both.
    unsafe { core::ptr::copy_nonoverlapping(from, ring, length) };
}

/// Copies out of a ring.
///
/// # Safety
/// `ring` must be readable and `to` writable for `length` bytes, and they must not overlap.
#[inline(always)]
pub(crate) unsafe fn copy_out(ring: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller vouches for both.
    unsafe { core::ptr::copy_nonoverlapping(ring, to, length) };
}
