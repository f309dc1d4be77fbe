//! A descriptor of ours, closed when its owner goes.

use crate::kernel;

/// A descriptor of ours, closed when dropped.
#[derive(Debug)]
pub struct Owned(pub i32);

impl Owned {
    /// Gives the descriptor away.
    pub fn into_raw(self) -> i32 {
        let fd = self.0;
        core::mem::forget(self);
        fd
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = kernel::close(self.0);
    }
}
