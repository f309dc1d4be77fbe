//! Descriptors that a shard opens while it runs, of which its owner is told.

use bypass_sys::descriptor::Owned;
use bypass_sys::kernel;

/// Told of a descriptor when it is open (true), and just before it is closed (false): for who keeps the
/// program from seeing it.
pub type Notice = fn(i32, bool);

/// A descriptor out of the way of the program's numbers; closed when dropped.
#[derive(Debug)]
pub struct Held {
    fd: Owned,
    notice: Notice,
}

impl Held {
    /// Moves it.
    pub fn new(fd: Owned, notice: Notice) -> kernel::Result<Self> {
        let fd = Owned(kernel::move_high(fd.into_raw())?);
        notice(fd.0, true);
        Ok(Self { fd, notice })
    }

    /// The number.
    pub fn fd(&self) -> i32 {
        self.fd.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        (self.notice)(self.fd.0, false);
    }
}
