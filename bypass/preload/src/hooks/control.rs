//! The control part of a message that is sent: walked as the kernel walks it, and what it says of a wrong one.

use core::ffi::c_int;

use libc::{cmsghdr, msghdr};

use crate::address::is_wild;

/// Of asm-generic/socket.h: what a message of a stream may ask for.
const FOR_STREAMS: [c_int; 3] = [libc::SO_MARK, libc::SO_PRIORITY, libc::SO_TIMESTAMPING];

/// One part of a message's control.
pub struct Part {
    pub level: c_int,
    pub kind: c_int,
    pub data: *const u8,
    pub length: usize,
}

/// The parts, until one that is wrong.
struct Parts {
    control: *const u8,
    size: usize,
    at: usize,
}

/// A part that says a length which cannot be its own.
struct Wrong;

impl Parts {
    fn of(header: &msghdr) -> Self {
        Self {
            control: header.msg_control.cast(),
            size: header.msg_controllen,
            at: 0,
        }
    }

    /// The next one; None at the end.
    unsafe fn next(&mut self) -> Result<Option<Part>, Wrong> {
        let head = size_of::<cmsghdr>();
        if is_wild(self.control) || self.size.saturating_sub(self.at) < head {
            return Ok(None);
        }
        // SAFETY: the caller's control part has so many bytes; a header there need not be aligned.
        let one = unsafe { self.control.add(self.at).cast::<cmsghdr>().read_unaligned() };
        let length = one.cmsg_len;
        if length < head || length > self.size - self.at {
            return Err(Wrong);
        }
        let part = Part {
            level: one.cmsg_level,
            kind: one.cmsg_type,
            // SAFETY: inside the control part, as was just looked at.
            data: unsafe { self.control.add(self.at + head) },
            length: length - head,
        };
        self.at += length.next_multiple_of(align_of::<cmsghdr>());
        Ok(Some(part))
    }
}

/// Calls `work` with every part before the first that is wrong: the kernel refuses such a message.
///
/// # Safety
/// The header's control part has the length that it says.
pub unsafe fn each(header: &msghdr, mut work: impl FnMut(Part)) {
    let mut parts = Parts::of(header);
    // SAFETY: the caller's promise.
    while let Ok(Some(part)) = unsafe { parts.next() } {
        work(part);
    }
}

/// The kernel's result for the control part of a message that is sent on a stream; None: no error.
///
/// # Safety
/// As for [`each`].
pub unsafe fn error(header: &msghdr) -> Option<c_int> {
    if header.msg_controllen > i32::MAX as usize {
        return Some(libc::ENOBUFS);
    }
    if header.msg_controllen > 0 && is_wild(header.msg_control) {
        return Some(libc::EFAULT);
    }
    let mut parts = Parts::of(header);
    loop {
        // SAFETY: the caller's promise.
        match unsafe { parts.next() } {
            Ok(None) => return None,
            Ok(Some(part)) if is_known(&part) => {}
            _ => return Some(libc::EINVAL),
        }
    }
}

/// Parts of other levels are passed over; descriptors and credentials are for Unix sockets.
fn is_known(part: &Part) -> bool {
    let is_number = part.length == size_of::<u32>();
    part.level != libc::SOL_SOCKET
        || matches!(part.kind, libc::SCM_RIGHTS | libc::SCM_CREDENTIALS)
        || (is_number && FOR_STREAMS.contains(&part.kind))
}
