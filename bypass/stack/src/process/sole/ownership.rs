//! How one thread owns locks without taking them, and how that ends; see [`super`].
//!
//! Compiled once more by `tests/models`, with loom's atomics in the place of [`super::atomic`].

use super::atomic::{
    can_fence_others, compiler_fence, fence_others, let_others_run, AtomicU32, AtomicUsize,
    Ordering,
};

/// In `owner`: no thread has taken ownership yet.
pub const NOBODY: usize = 0;
/// A newcomer waits for the owner to be outside.
pub const ENDING: usize = 1;
/// There are several threads: locks are taken.
pub const SEVERAL: usize = 2;

/// The thread that owns the locks; see the module.
#[repr(align(128))]
pub struct Ownership {
    /// A thread's place in memory, or one of the constants.
    pub owner: AtomicUsize,
    /// Who it was when that ended.
    pub former: AtomicUsize,
    /// Locks that the owner holds, each inside the one before.
    pub inside: AtomicU32,
}

/// The owner is inside until this is dropped.
pub struct Inside<'a>(&'a Ownership);

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        let inside = &self.0.inside;
        let others = inside.load(Ordering::Relaxed).wrapping_sub(1);
        inside.store(others, Ordering::Release);
    }
}

impl Ownership {
    /// Spares thread `me` a lock, if it is the only one that has ever come.
    #[inline]
    pub fn enter(&self, me: usize) -> Option<Inside<'_>> {
        // Acquire: who is one of several sees what the owner did while it was alone.
        match self.owner.load(Ordering::Acquire) {
            owner if owner == me => {}
            SEVERAL => return None,
            NOBODY if self.claim(me) => {}
            _ => {
                self.end(me);
                return None;
            }
        }
        let others = self.inside.load(Ordering::Relaxed);
        self.inside.store(others.wrapping_add(1), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let inside = Inside(self);
        (self.owner.load(Ordering::Relaxed) == me).then_some(inside)
    }

    #[cold]
    fn claim(&self, me: usize) -> bool {
        let claim = if can_fence_others() { me } else { SEVERAL };
        let claimed =
            self.owner
                .compare_exchange(NOBODY, claim, Ordering::AcqRel, Ordering::Acquire);
        claimed.is_ok() && claim == me
    }

    /// Returns when the locks have an owner no longer; at once for the former owner, which is not inside.
    #[cold]
    pub fn end(&self, me: usize) {
        let mut looks = 0;
        loop {
            match self.owner.load(Ordering::Acquire) {
                SEVERAL | NOBODY => return,
                ENDING if self.former.load(Ordering::Acquire) == me => return,
                ENDING => let_others_run(&mut looks),
                owner => self.end_of(owner),
            }
        }
    }

    fn end_of(&self, owner: usize) {
        // There is only one owner ever: whoever stores this stores the same.
        self.former.store(owner, Ordering::Release);
        let ended = self
            .owner
            .compare_exchange(owner, ENDING, Ordering::SeqCst, Ordering::Relaxed);
        if ended.is_err() {
            return;
        }
        fence_others();
        let mut looks = 0;
        while self.inside.load(Ordering::Acquire) != 0 {
            let_others_run(&mut looks);
        }
        self.owner.store(SEVERAL, Ordering::Release);
    }

    /// Runs `work` while everybody takes locks, the owner too, which is the owner again afterwards; not
    /// while there is none yet or one ends.
    #[cold]
    pub fn visit(&self, me: usize, work: impl FnOnce()) {
        let owner = self.owner.load(Ordering::Acquire);
        if owner == SEVERAL || owner == me {
            return work();
        }
        if owner == NOBODY || owner == ENDING {
            return;
        }
        self.former.store(owner, Ordering::Release);
        let paused =
            self.owner
                .compare_exchange(owner, ENDING, Ordering::SeqCst, Ordering::Relaxed);
        if paused.is_err() {
            return;
        }
        fence_others();
        let mut looks = 0;
        while self.inside.load(Ordering::Acquire) != 0 {
            let_others_run(&mut looks);
        }
        work();
        // Nobody else ends an ownership that is ending. Release: the owner sees what was done.
        self.owner.store(owner, Ordering::Release);
    }
}
