//! A shard behind a lock.

use std::sync::{Mutex, MutexGuard, TryLockError};

use crate::shard::{now_us, Shard};

/// A shard that the threads of a program share.
pub struct Shared(Mutex<Shard>);

impl Shared {
    /// Puts it behind a lock.
    pub fn new(shard: Shard) -> Self {
        Self(Mutex::new(shard))
    }

    /// Takes the lock. A thread that panicked inside leaves the shard as it was between two calls.
    pub fn lock(&self) -> MutexGuard<'_, Shard> {
        self.0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// For a service thread: a round, when no thread has driven the shard for `idle_us` and none is
    /// at it. Acknowledgments, retransmissions and closes go on while the program does something
    /// else.
    pub fn drive_if_idle(&self, idle_us: u64) -> bool {
        let mut shard = match self.0.try_lock() {
            Ok(shard) => shard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if now_us().saturating_sub(shard.driven_us()) < idle_us {
            return false;
        }
        shard.drive();
        shard.finish();
        true
    }
}
