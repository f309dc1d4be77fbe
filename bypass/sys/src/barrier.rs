//! The fence of sleep and wake, paid by the side that sleeps.
//!
//! Who publishes stores bytes and a ready flag, then loads `sleeping`; who sleeps stores `sleeping`, then
//! looks for ready flags. Each side needs a full fence between its store and its load, or both may miss
//! the other. A publisher does this for every message, a sleeper only when there is nothing to do;
//! so where the kernel can (membarrier), the sleeper makes every running thread of the other
//! side pass a fence, and the publisher needs none.
//!
//! A sleeper pays microseconds for that. Processes that spin only briefly sleep often: they ask
//! publishers for fences instead (`fenced` in the segment's header), and so does a process whose
//! kernel or sandbox has no membarrier. A publisher that could not register always fences.

use core::sync::atomic::{compiler_fence, fence, AtomicBool, Ordering};

use crate::kernel;

/// MEMBARRIER_CMD_GLOBAL_EXPEDITED of linux/membarrier.h.
const GLOBAL_EXPEDITED: usize = 1 << 1;
/// MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED.
const REGISTER_GLOBAL_EXPEDITED: usize = 1 << 2;

/// The sleeper's side has asked publishers for fences: its own is then an ordinary one.
static ASKS_FOR_FENCES: AtomicBool = AtomicBool::new(true);
/// Nobody can fence on behalf of this process.
static IS_UNREGISTERED: AtomicBool = AtomicBool::new(true);

fn membarrier(command: usize) -> kernel::Result<usize> {
    // SAFETY: membarrier(2) takes numbers only and orders memory; it changes nothing.
    kernel::check(unsafe { kernel::raw(libc::SYS_membarrier, [command, 0, 0, 0, 0, 0]) })
}

/// Decides once per process, before it shares any memory, and again in a forked child.
pub fn choose(sleeps_often: bool) {
    let is_registered = membarrier(REGISTER_GLOBAL_EXPEDITED).is_ok();
    IS_UNREGISTERED.store(!is_registered, Ordering::Relaxed);
    let asks = sleeps_often || membarrier(GLOBAL_EXPEDITED).is_err();
    ASKS_FOR_FENCES.store(asks, Ordering::Relaxed);
}

/// Before the process may no longer call membarrier: it takes part with fences from here on.
pub fn choose_fences() {
    IS_UNREGISTERED.store(true, Ordering::SeqCst);
    ASKS_FOR_FENCES.store(true, Ordering::SeqCst);
}

/// Whether this process, when it waits, needs publishers that fence.
pub fn asks_for_fences() -> bool {
    ASKS_FOR_FENCES.load(Ordering::Relaxed)
}

/// The publisher's fence. `fenced`: what the waiting side has asked for.
#[inline(always)]
pub fn light(fenced: bool) {
    if fenced || IS_UNREGISTERED.load(Ordering::Relaxed) {
        fence(Ordering::SeqCst);
    } else {
        compiler_fence(Ordering::SeqCst);
    }
}

/// The sleeper's fence, between saying that it sleeps and its last look.
#[inline]
pub fn heavy() {
    fence(Ordering::SeqCst);
    if !asks_for_fences() && membarrier(GLOBAL_EXPEDITED).is_err() {
        // It worked when it was chosen. A sandbox came later: publishers cannot be told in time,
        // but all of them have long passed a fence after a switch of their processor.
        let _ = kernel::sched_yield();
    }
}

/// Whether [`fence_others`] can do its work for this process.
pub fn can_fence_others() -> bool {
    membarrier(REGISTER_GLOBAL_EXPEDITED).is_ok() && membarrier(GLOBAL_EXPEDITED).is_ok()
}

/// Makes every running thread of this process pass a fence; what they have stored before is seen
/// after this, and they see what the caller has stored.
pub fn fence_others() {
    fence(Ordering::SeqCst);
    if membarrier(GLOBAL_EXPEDITED).is_err() {
        // A sandbox came later. No store lies in a processor for so long.
        let _ = kernel::poll(&mut [], Some(core::time::Duration::from_millis(10)), None);
    }
}
