//! The atomics and the copy of rings and doorbells, named here so that `tests/models` can put
//! loom's in their place and run the same code under every order of memory operations.

pub(crate) use core::sync::atomic::{fence, AtomicU32, AtomicU64, AtomicU8, Ordering};

pub(crate) use bypass_sys::barrier::{heavy, light};

/// Which ready flags of a group deserve a look, a bit for each: flags that are set, and flags whose news
/// differ from what was `seen`. A hint: the caller then checks each flag individually.
#[inline(always)]
pub(crate) fn ringing(flags: &[AtomicU8], news: &[AtomicU8], seen: &[u8]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_mm_andnot_si128, _mm_loadu_si128, _mm_set1_epi8};
        use core::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_setzero_si128};
        let sixteen = |part: usize| {
            let at = part * 16..part * 16 + 16;
            let (flags, news) = (sixteen(&flags[at.clone()]), sixteen(&news[at.clone()]));
            // SAFETY: the slice has 16 bytes, and every x86-64 processor has these instructions.
            let quiet = unsafe {
                let seen = _mm_loadu_si128(seen[at].as_ptr().cast());
                let is_unset = _mm_cmpeq_epi8(flags, _mm_setzero_si128());
                let is_known = _mm_cmpeq_epi8(news, seen);
                let is_new = _mm_andnot_si128(is_known, _mm_set1_epi8(-1));
                _mm_movemask_epi8(_mm_andnot_si128(is_new, is_unset))
            };
            u64::from(!quiet as u16) << (part * 16)
        };
        if flags.len() == 64 {
            return sixteen(0) | sixteen(1) | sixteen(2) | sixteen(3);
        }
    }
    let is_ringing = |at: &usize| {
        flags[*at].load(Ordering::Relaxed) != 0 || news[*at].load(Ordering::Relaxed) != seen[*at]
    };
    (0..flags.len())
        .filter(is_ringing)
        .fold(0, |mask, at| mask | 1 << at)
}

/// Sixteen bytes at once. A load of the processor and not of the language, in which one load of
/// several atomics has no meaning.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn sixteen(bytes: &[AtomicU8]) -> core::arch::x86_64::__m128i {
    assert!(bytes.len() == 16);
    let found;
    // SAFETY: reads sixteen bytes that exist, as just checked.
    unsafe {
        core::arch::asm!("movdqu {found}, xmmword ptr [{at}]", found = out(xmm_reg) found,
            at = in(reg) bytes.as_ptr(), options(nostack, readonly, preserves_flags));
    }
    found
}

/// Fetches the line of `place`.
#[inline(always)]
pub(crate) fn fetch<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and cannot fault.
    unsafe {
        use core::arch::x86_64::{_mm_prefetch, _MM_HINT_T0};
        _mm_prefetch::<_MM_HINT_T0>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// Fetches the line of `place` for writing: the other side has read it since, and a store that has
/// to wait for it holds up the next locked operation.
#[inline(always)]
pub(crate) fn fetch_for_writing<T>(place: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch changes nothing and cannot fault; where it is unknown it does nothing.
    unsafe {
        core::arch::asm!("prefetchw byte ptr [{at}]", at = in(reg) place,
            options(nostack, readonly, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
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
