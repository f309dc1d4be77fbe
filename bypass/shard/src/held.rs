//! Descriptors that a shard opens while it runs, which are reported to its owner.

use bypass_sys::descriptor::Owned;

/// Called with a descriptor when it is open (true), and just before it is closed (false): for an owner that keeps the
/// program from seeing it.
pub type Notice = fn(i32, bool);

/// A descriptor out of the way of the program's numbers; closed when dropped.
#[derive(Debug)]
pub struct Held {
    fd: Owned,
    notice: Notice,
}

impl Held {
    /// Reports it.
    pub fn new(fd: Owned, notice: Notice) -> Self {
        notice(fd.0, true);
        Self { fd, notice }
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
