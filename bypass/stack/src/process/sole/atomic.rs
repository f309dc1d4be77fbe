//! What [`super::ownership`] is made of; the models put loom's in its place.

pub use bypass_sys::barrier::{can_fence_others, fence_others};
pub use core::sync::atomic::{compiler_fence, AtomicU32, AtomicUsize, Ordering};

/// Somebody else has to go on first; so often was waited for it already.
pub fn let_others_run(looks: &mut u32) {
    bypass_sys::kernel::let_others_run(*looks);
    *looks = looks.saturating_add(1);
}
