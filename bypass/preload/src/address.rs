//! Addresses at which no program has memory. The kernel copies, fails and says EFAULT; this library would crash, as it
//! does at other addresses that are not mapped.

/// Nothing of a program is mapped in the first page.
const PAGE: isize = 4096;

/// Whether `at` is in the first page or in the kernel's half.
#[inline(always)]
pub fn is_wild<T>(at: *const T) -> bool {
    number(at) < PAGE
}

/// Whether it is in the kernel's half, which the kernel refuses before it looks at anything else.
#[inline(always)]
pub fn is_kernels<T>(at: *const T) -> bool {
    number(at) < 0
}

/// The address; negative in the kernel's half.
#[inline(always)]
fn number<T>(at: *const T) -> isize {
    if cfg!(target_arch = "aarch64") {
        // Programs may keep a tag in the uppermost byte.
        return ((at as isize) << 8) >> 8;
    }
    at as isize
}
