//! The atomics and the copy of rings and doorbells, named here so that `tests/models` can put
//! loom's in their place and run the same code under every order of memory operations.

pub(crate) use core::sync::atomic::{fence, AtomicU32, AtomicU64, AtomicU8, Ordering};

pub(crate) use crate::barrier::{heavy, light};

/// Whether one of eight bells is set, as a hint: each is then looked at by itself.
#[inline(always)]
pub(crate) fn any_set(bells: &[AtomicU8]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if let Ok(eight) = <&[AtomicU8; 8]>::try_from(bells) {
        let word: u64;
        // SAFETY: reads eight bytes that exist. A load of the processor and not of the language,
        // in which one load of several atomics has no meaning.
        unsafe {
            core::arch::asm!("mov {word}, qword ptr [{at}]", word = out(reg) word,
                at = in(reg) eight.as_ptr(), options(nostack, readonly, preserves_flags));
        }
        return word != 0;
    }
    bells.iter().any(|bell| bell.load(Ordering::Relaxed) != 0)
}

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
