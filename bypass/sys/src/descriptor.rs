//! A descriptor of the library, closed when its owner is dropped.

use core::ffi::CStr;

use crate::kernel::{self, Result};

/// A descriptor of the library, closed when dropped.
#[derive(Debug)]
pub struct Owned(pub i32);

impl Owned {
    /// Releases the descriptor to the caller, unclosed.
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

/// Names a file without opening it (O_PATH), if it is a regular file; `/proc/self/fd/NUMBER` can
/// then be opened.
pub fn regular(name: &CStr) -> Result<Option<Owned>> {
    let file = Owned(kernel::open(name, libc::O_PATH | libc::O_CLOEXEC)?);
    let mode = kernel::fstat(file.0)?.st_mode;
    Ok((mode & libc::S_IFMT == libc::S_IFREG).then_some(file))
}
