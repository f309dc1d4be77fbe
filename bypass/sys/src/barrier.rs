//! The fence of sleep and wake, paid by the side that sleeps.
//!
//! A publisher stores bytes and a ready flag, then loads `sleeping`; a sleeper stores `sleeping`,
//! then checks the ready flags. Each side needs a full fence between its store and its load, or
//! both may miss the other. A publisher does this for every message, a sleeper only when it is
//! idle. So where the kernel has membarrier, the sleeper makes every running thread of the other
//! side pass a fence, and the publisher needs none.
//!
//! A sleeper pays microseconds for that. Processes that spin only briefly sleep often: they ask
//! publishers for fences instead (`fenced` in the segment's header), and so does a process whose
//! kernel or sandbox has no membarrier. A publisher that could not register always fences.

use core::sync::atomic::{compiler_fence, fence, AtomicBool, Ordering};

use crate::kernel;
use crate::sandbox::is_confined;

/// MEMBARRIER_CMD_GLOBAL_EXPEDITED of linux/membarrier.h.
const GLOBAL_EXPEDITED: usize = 1 << 1;
/// MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED.
const REGISTER_GLOBAL_EXPEDITED: usize = 1 << 2;

/// The sleeper's side has asked publishers for fences: its own is then an ordinary one.
static ASKS_FOR_FENCES: AtomicBool = AtomicBool::new(true);
/// No other process can fence on behalf of this one.
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

/// To be called before the process may no longer call membarrier: from here on it uses fences.
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

/// The sleeper's fence, between announcing that it sleeps and its last check.
#[inline]
pub fn heavy() {
    fence(Ordering::SeqCst);
    if !asks_for_fences() && membarrier(GLOBAL_EXPEDITED).is_err() {
        // membarrier worked at `choose`; a sandbox has forbidden it since. It is too late to ask
        // publishers for fences, but all of them passed one long ago, when their processor switched
        // threads.
        let _ = kernel::sched_yield();
    }
}

/// Whether [`fence_others`] can do its work for this process. A filter may end one that asks.
pub fn can_fence_others() -> bool {
    !is_confined()
        && membarrier(REGISTER_GLOBAL_EXPEDITED).is_ok()
        && membarrier(GLOBAL_EXPEDITED).is_ok()
}

/// Makes every running thread of this process pass a fence: the caller then sees their earlier
/// stores, and they see the caller's.
pub fn fence_others() {
    fence(Ordering::SeqCst);
    if membarrier(GLOBAL_EXPEDITED).is_err() {
        // A sandbox came later. No store stays in a store buffer for so long.
        let _ = kernel::poll(&mut [], Some(core::time::Duration::from_millis(10)), None);
    }
}
