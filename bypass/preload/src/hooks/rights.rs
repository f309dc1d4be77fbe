//! Descriptors in messages (SCM_RIGHTS): connections are offered before they are sent, and looked
//! for among what was received.

use core::ffi::{c_int, c_uint};

use bypass_stack::lifecycle::passing::{self, Receipt};
use bypass_stack::operations::datagrams;
use bypass_stack::operations::descriptors::is_hidden;
use bypass_stack::process::deferral::inside;
use bypass_stack::process::table;
use bypass_sys::kernel;
use libc::msghdr;

use super::control;

/// UIO_MAXIOV of the kernel.
pub const MESSAGES_MAX: usize = 1024;

/// Calls `work` with every descriptor in a message's control part.
unsafe fn each(header: *const msghdr, mut work: impl FnMut(c_int)) {
    let of_part = |part: control::Part| {
        if (part.level, part.kind) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            return;
        }
        for index in 0..part.length / size_of::<c_int>() {
            // SAFETY: inside the part's data; numbers there need not be aligned.
            work(unsafe { part.data.cast::<c_int>().add(index).read_unaligned() });
        }
    };
    // SAFETY: the caller's header, whose control part has the length that it says.
    unsafe { control::each(&*header, of_part) };
}

/// Whether the kernel refuses to send a message over `over`, as it names a descriptor that is closed: the number may mean a
/// socket of the pool.
#[cold]
pub unsafe fn is_refused(over: c_int, header: *const msghdr) -> bool {
    let mut has_closed = false;
    // SAFETY: the caller's header.
    unsafe { each(header, |fd| has_closed |= is_hidden(fd)) };
    // Others do not look at it, or refuse it anyway.
    let takes = || kernel::option_int(over, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_UNIX);
    has_closed && takes()
}

/// The first of several messages of which that is so.
pub unsafe fn first_refused(
    over: c_int,
    messages: *const libc::mmsghdr,
    count: c_uint,
) -> Option<c_uint> {
    (0..count.min(MESSAGES_MAX as c_uint)).find(|index| {
        // SAFETY: the caller's array of `count` messages.
        unsafe {
            let header = &(*messages.add(*index as usize)).msg_hdr;
            header.msg_controllen > 0 && is_refused(over, header)
        }
    })
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
            if table::is_datagram(fd) {
                inside(|| datagrams::leave(fd));
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
pub unsafe fn after_receiving(header: *const msghdr, flags: c_int) {
    let receipt = match flags & libc::MSG_PEEK {
        0 => Receipt::Taken,
        _ => Receipt::LookedAt,
    };
    // SAFETY: the header as the kernel has filled it.
    unsafe { each(header, |fd| inside(|| passing::received(fd, receipt))) }
}

/// The same for each of several messages.
pub unsafe fn each_of(messages: *const libc::mmsghdr, count: c_uint, work: impl Fn(*const msghdr)) {
    // No more in one call than the kernel takes.
    for index in 0..(count as usize).min(MESSAGES_MAX) {
        // SAFETY: the caller's array of `count` messages.
        let header = unsafe { &(*messages.add(index)).msg_hdr };
        if header.msg_controllen > 0 {
            work(header);
        }
    }
}
