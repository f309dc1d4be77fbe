//! Descriptors in messages (SCM_RIGHTS): connections are offered before they are sent, and looked
//! for among what was received.

use core::ffi::{c_int, c_uint};

use bypass_stack::lifecycle::passing;
use bypass_stack::process::deferral::inside;
use libc::{cmsghdr, msghdr};

/// Calls `work` with every descriptor in a message's control part.
unsafe fn each(header: *const msghdr, mut work: impl FnMut(c_int)) {
    // SAFETY: the caller's header, whose control part has the length that it says.
    let mut at: *const cmsghdr = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !at.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give whole headers only.
        let one = unsafe { &*at };
        if one.cmsg_level == libc::SOL_SOCKET && one.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: as above.
            let data = unsafe { libc::CMSG_DATA(at) };
            let head = data as usize - at as usize;
            for index in 0..one.cmsg_len.saturating_sub(head) / size_of::<c_int>() {
                // SAFETY: inside the message's data; numbers there need not be aligned.
                work(unsafe { data.cast::<c_int>().add(index).read_unaligned() });
            }
        }
        // SAFETY: as above.
        at = unsafe { libc::CMSG_NXTHDR(header, at) };
    }
}

/// Before a message of the kernel's is sent.
#[cold]
pub unsafe fn before_sending(header: *const msghdr) {
    // SAFETY: the caller's header.
    unsafe {
        each(header, |fd| {
            if passing::is_ours(fd) {
                inside(|| passing::offer(fd));
            }
        })
    }
}

/// After a message was not sent, for which its connections were offered.
#[cold]
pub unsafe fn after_failing(header: *const msghdr) {
    // SAFETY: the caller's header.
    unsafe {
        each(header, |fd| {
            if passing::is_ours(fd) {
                inside(|| passing::take_back(fd));
            }
        })
    }
}

/// After a message was received from the kernel.
#[cold]
pub unsafe fn after_receiving(header: *const msghdr) {
    // SAFETY: the header as the kernel has filled it.
    unsafe { each(header, passing::received) }
}

/// The same for each of several messages.
pub unsafe fn each_of(
    messages: *const libc::mmsghdr,
    count: c_uint,
    work: unsafe fn(*const msghdr),
) {
    for index in 0..count as usize {
        // SAFETY: the caller's array of `count` messages.
        let header = unsafe { &(*messages.add(index)).msg_hdr };
        if header.msg_controllen > 0 {
            // SAFETY: one of the caller's headers.
            unsafe { work(header) };
        }
    }
}
