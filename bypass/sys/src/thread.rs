//! Per-thread state, found without a call into the loader.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::kernel;
use crate::sandbox::is_confined;

/// Per-thread state; zero at the start.
#[repr(C, align(64))]
pub struct Thread {
    tid: AtomicU32,
    stripe: AtomicU32,
    /// Above 0 while library code runs: signal handlers wait.
    pub inside: AtomicU32,
    /// Signal handlers that have run in this thread.
    pub signals: AtomicU32,
    /// Of these, handlers without SA_RESTART: they end blocking calls.
    pub interrupts: AtomicU32,
    /// The thread's cancellation state: the `CANCEL_` bits.
    pub cancel: AtomicU32,
    /// Signals that are blocked until the thread leaves library code, as the kernel's bit set.
    pub deferred: AtomicU64,
    /// The connection whose bytes are published but not announced yet; 0 for none.
    pub held_back: AtomicU64,
    /// The connection that a call of this thread holds while it sleeps, by name; 0 for none.
    pub kept: AtomicU64,
    /// Changes at each start and end of a sleep in a library call; odd while the thread sleeps.
    pub sleeps: AtomicU32,
    /// One more than the number of the waker on which it sleeps, after which it checks everything
    /// that may have woken it; 0 for none.
    pub sleeps_on: AtomicU32,
    /// An address in the frame that called the program's signal handler; 0 outside of handlers.
    handler_frame: AtomicU64,
    /// Which calls of the thread spin, by its own choice; 0: as the options say.
    pub spins: AtomicU32,
    /// Whether its new sockets are accelerated, and by whose choice; 0: as those of its process.
    pub acceleration: AtomicU32,
    /// Such choices that are kept to come back to, one above the other; 0 for none.
    pub acceleration_kept: AtomicU32,
    /// Not 0: the library has started the thread, and the program's filters (seccomp) do not concern it.
    pub is_librarys: AtomicU32,
    /// The time until which it only spins briefly, because it shares its core; 0 for never.
    pub spins_briefly_until: AtomicU64,
}

/// As the assembler has it below.
const _: () = assert!(size_of::<Thread>() == 128);

/// A cancellation of the thread was requested.
pub const CANCEL_REQUESTED: u32 = 1;
/// The thread has disabled cancellation for now.
pub const CANCEL_DISABLED: u32 = 2;
/// The thread allows cancellation at any instruction.
pub const CANCEL_ASYNCHRONOUS: u32 = 4;
/// The thread is ending: calls of its clean-up handlers are not cancelled again.
pub const CANCEL_ACTING: u32 = 8;

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".section .tbss.wirespeed_thread,\"awT\",@nobits",
    ".globl wirespeed_thread",
    ".hidden wirespeed_thread",
    ".type wirespeed_thread,@object",
    ".size wirespeed_thread,128",
    ".p2align 6",
    "wirespeed_thread: .zero 128",
    ".text",
);

/// The calling thread's block.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn thread() -> &'static Thread {
    let place: *const Thread;
    // SAFETY: initial-exec access to a thread-local of 128 zeroed bytes, as the ABI defines it.
    unsafe {
        core::arch::asm!("mov {0}, qword ptr [rip + wirespeed_thread@gottpoff]",
            "add {0}, qword ptr fs:[0]", out(reg) place, options(pure, readonly, nostack));
    }
    // SAFETY: the block lives as long as the thread and holds atomics, for which zero is valid.
    unsafe { &*place }
}

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".section .tbss.wirespeed_thread,\"awT\",%nobits",
    ".globl wirespeed_thread",
    ".hidden wirespeed_thread",
    ".type wirespeed_thread,%object",
    ".size wirespeed_thread,128",
    ".p2align 6",
    "wirespeed_thread: .zero 128",
    ".text",
);

/// The calling thread's block.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn thread() -> &'static Thread {
    let place: *const Thread;
    // SAFETY: initial-exec access to a thread-local of 128 zeroed bytes, as the ABI defines it.
    unsafe {
        core::arch::asm!("adrp {0}, :gottprel:wirespeed_thread",
            "ldr {0}, [{0}, #:gottprel_lo12:wirespeed_thread]", "mrs {1}, tpidr_el0",
            "add {0}, {0}, {1}", out(reg) place, out(reg) _, options(pure, readonly, nostack));
    }
    // SAFETY: the block lives as long as the thread and holds atomics, for which zero is valid.
    unsafe { &*place }
}

impl Thread {
    /// The thread's number.
    #[inline]
    pub fn tid(&self) -> u32 {
        match self.tid.load(Ordering::Relaxed) {
            0 => {
                let tid = kernel::gettid().unwrap_or(1) as u32;
                self.tid.store(tid, Ordering::Relaxed);
                tid
            }
            tid => tid,
        }
    }

    /// Runs a signal handler of the program.
    pub fn handling(&self, run: impl FnOnce()) {
        let place = 0u8;
        let before = self.handler_frame.load(Ordering::Relaxed);
        let frame = core::ptr::from_ref(&place) as u64;
        self.handler_frame.store(frame, Ordering::Relaxed);
        run();
        self.handler_frame.store(before, Ordering::Relaxed);
    }

    /// Whether a signal handler of the program runs, which may have interrupted any function,
    /// malloc included. A handler that was left by siglongjmp(3) does not count: its frame is below
    /// the current one.
    pub fn is_handling(&self) -> bool {
        let place = 0u8;
        (core::ptr::from_ref(&place) as u64) < self.handler_frame.load(Ordering::Relaxed)
    }

    /// Whether the thread should end at the next cancellation point.
    pub fn is_cancelled(&self) -> bool {
        let bits = CANCEL_REQUESTED | CANCEL_DISABLED | CANCEL_ACTING;
        self.cancel.load(Ordering::SeqCst) & bits == CANCEL_REQUESTED
    }

    /// Starts a sleep in a library call; returns the argument for [`end_sleep`](Self::end_sleep). A
    /// thread that requests a cancellation and sees no sleep is seen by
    /// [`is_cancelled`](Self::is_cancelled).
    pub fn begin_sleep(&self) -> u32 {
        // A thread that signals this one must know its number.
        self.tid();
        let before = self.sleeps.load(Ordering::SeqCst);
        let now = before.wrapping_add(2) | 1;
        self.sleeps.store(now, Ordering::SeqCst);
        before
    }

    /// Ends the sleep; a handler's sleep may have been inside another.
    pub fn end_sleep(&self, before: u32) {
        let now = self.sleeps.load(Ordering::SeqCst).wrapping_add(2);
        self.sleeps.store(now & !1 | before & 1, Ordering::SeqCst);
    }

    /// Whether the thread may make sockets to ask the kernel something: in a process that has confined itself only the library's
    /// thread may, which has ended where the filter holds for all threads.
    #[inline]
    pub fn may_ask(&self) -> bool {
        !is_confined() || self.is_librarys.load(Ordering::Relaxed) != 0
    }

    /// Counts in the thread's place, after `take` has found one for it.
    #[inline]
    pub fn stripe(&self, take: impl FnOnce() -> usize) -> usize {
        match self.stripe.load(Ordering::Relaxed) {
            0 => {
                let stripe = take();
                self.stripe.store(stripe as u32 + 1, Ordering::Relaxed);
                stripe
            }
            stripe => stripe as usize - 1,
        }
    }

    /// In a forked child: these numbers are the parent's.
    pub fn forget(&self) {
        self.tid.store(0, Ordering::Relaxed);
        self.stripe.store(0, Ordering::Relaxed);
        self.held_back.store(0, Ordering::Relaxed);
    }
}
