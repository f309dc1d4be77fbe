//! What [`super::ownership`] is made of; the models put loom's in its place.

pub use bypass_sys::barrier::{can_fence_others, fence_others};
pub use core::sync::atomic::{compiler_fence, AtomicU32, AtomicUsize, Ordering};

/// Somebody else has to go on first.
pub fn let_others_run() {
    let _ = bypass_sys::kernel::sched_yield();
}
