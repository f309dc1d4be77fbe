//! Reads and writes at an offset, which a socket does not have.

use core::ffi::{c_int, c_void};

use bypass_stack::operations::descriptors::visible;
use bypass_stack::process::table;
use libc::{iovec, off_t, size_t, ssize_t};

use super::data;
use crate::outcome::fail;
use crate::real;

#[no_mangle]
pub unsafe extern "C-unwind" fn pread(
    fd: c_int,
    at: *mut c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // Of a socket of ours the shadow says that it has no offset.
    // SAFETY: the caller's arguments.
    unsafe { real::pread()(visible(fd), at, length, offset) }
}

/// With this offset preadv2(2) and pwritev2(2) are readv and writev with flags.
const NO_OFFSET: off_t = -1;

/// Flags of linux/fs.h that a socket takes: all but the last are about files, and change nothing.
const FOR_FILES: c_int =
    libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC | libc::RWF_APPEND | libc::RWF_NOAPPEND;

/// The flags of recv(2) and send(2) that mean the same; None where a socket takes no such flag.
fn of_sockets(flags: c_int) -> Option<c_int> {
    let rest = flags & !FOR_FILES;
    match rest {
        0 => Some(0),
        libc::RWF_NOWAIT => Some(libc::MSG_DONTWAIT),
        _ => None,
    }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn preadv2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe {
        let kernel = || real::preadv2()(visible(fd), pieces, count, offset, flags);
        match of_sockets(flags) {
            // Of a socket of ours the shadow says that it has no offset.
            _ if offset != NO_OFFSET => kernel(),
            // A file takes all flags.
            known if table::is_kernel(fd) => known
                .and_then(|flags| data::read_datagram(fd, pieces, count, flags))
                .unwrap_or_else(kernel),
            Some(flags) => data::read_pieces(fd, pieces, count, flags, kernel),
            None => fail(libc::EOPNOTSUPP) as ssize_t,
        }
    }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn preadv64v2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments; off_t has 64 bits here.
    unsafe { preadv2(fd, pieces, count, offset, flags) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    unsafe {
        let kernel = || real::pwritev2()(visible(fd), pieces, count, offset, flags);
        match of_sockets(flags) {
            _ if offset != NO_OFFSET => kernel(),
            known if table::is_kernel(fd) => known
                .and_then(|flags| data::write_datagram(fd, pieces, count, flags))
                .unwrap_or_else(kernel),
            Some(flags) => data::write_pieces(fd, pieces, count, flags, kernel),
            None => fail(libc::EOPNOTSUPP) as ssize_t,
        }
    }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn pwritev64v2(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments; off_t has 64 bits here.
    unsafe { pwritev2(fd, pieces, count, offset, flags) }
}
