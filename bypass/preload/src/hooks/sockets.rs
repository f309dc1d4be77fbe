//! Making sockets, their names and options.

use core::ffi::{c_int, c_void};

use bypass_stack::lifecycle::serving;
use bypass_stack::operations::{
    accept as stack_accept, connect as stack_connect, datagrams as stack_datagrams,
    descriptors as stack_descriptors, listen as stack_listen, options, shadow,
    shutdown as stack_shutdown,
};
use bypass_stack::process::deferral::inside;
use bypass_stack::process::{self, table};
use bypass_stack::Outcome;
use bypass_stats::Reason;
use libc::{sockaddr, socklen_t};

use super::closing::close;
use super::creating::or_give_back;
use super::datagrams;
use crate::address::is_wild;
use crate::cancel::point;
use crate::outcome::{errno, fail, finish};
use crate::real;

#[no_mangle]
pub unsafe extern "C-unwind" fn socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    if !process::is_started() {
        // Another library's constructor may come before ours.
        serving::provide();
    }
    finish(
        inside(|| stack_descriptors::socket(family, kind, protocol)),
        || {
            // SAFETY: the caller's arguments.
            let made = or_give_back(|| unsafe { real::socket()(family, kind, protocol) });
            if made >= 0 {
                inside(|| stack_datagrams::made(made, family, kind, protocol));
            }
            made as isize
        },
    ) as c_int
}

/// bind by the real call `kernel`.
fn bind_by(fd: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    finish(inside(|| stack_descriptors::bind(fd)), || {
        let result = kernel();
        if result == 0 {
            inside(|| stack_descriptors::bound(fd));
        }
        datagrams::after_naming(fd, result) as isize
    }) as c_int
}

#[no_mangle]
pub unsafe extern "C-unwind" fn bind(
    fd: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    bind_by(fd, || unsafe { real::bind()(fd, address, length) })
}

/// libc binds the socket without a call of bind that could be seen.
#[no_mangle]
pub unsafe extern "C-unwind" fn bindresvport(fd: c_int, address: *mut sockaddr) -> c_int {
    // SAFETY: the caller's arguments.
    bind_by(fd, || unsafe { real::bindresvport()(fd, address) })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn listen(fd: c_int, backlog: c_int) -> c_int {
    finish(inside(|| stack_listen::listen(fd, backlog)), || {
        // SAFETY: the caller's arguments.
        unsafe { real::listen()(fd, backlog) as isize }
    }) as c_int
}

#[no_mangle]
pub unsafe extern "C-unwind" fn connect(
    fd: c_int,
    address: *const sockaddr,
    length: socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::connect()(fd, address, length) };
    if table::is_kernel(fd) {
        return datagrams::after_naming(fd, kernel());
    }
    let lengths = size_of::<libc::sa_family_t>()..=size_of::<libc::sockaddr_storage>();
    if !lengths.contains(&(length as usize)) {
        return fail(libc::EINVAL);
    }
    if is_wild(address) {
        return fail(libc::EFAULT);
    }
    // SAFETY: connect(2) promises `length` readable bytes.
    let bytes = unsafe { core::slice::from_raw_parts(address.cast::<u8>(), length as usize) };
    point(
        || inside(|| stack_connect::connect(fd, bytes)),
        || kernel() as isize,
    ) as c_int
}

#[no_mangle]
pub unsafe extern "C-unwind" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
    flags: c_int,
) -> c_int {
    if table::is_kernel(fd) {
        // SAFETY: the caller's arguments.
        return or_give_back(|| unsafe { real::accept4()(fd, address, length, flags) });
    }
    let mut client = stack_accept::Client::NOBODY;
    let accept = || inside(|| stack_accept::accept(fd, flags, &mut client));
    let new = point(accept, || {
        // SAFETY: the caller's arguments.
        unsafe { real::accept4()(fd, address, length, flags) as isize }
    }) as c_int;
    // The kernel itself has given the name where there is none here.
    if new < 0 || address.is_null() || client.length == 0 {
        return new;
    }
    let name = Ok((client.bytes, client.length));
    // SAFETY: accept(2) promises a writable address of that length.
    if unsafe { give_name(name, address, length, || 0) } < 0 {
        // As by the kernel, the connection is lost.
        let error = errno();
        // SAFETY: numbers only.
        unsafe { close(new) };
        return fail(error);
    }
    new
}

#[no_mangle]
pub unsafe extern "C-unwind" fn accept(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    if table::is_kernel(fd) {
        // SAFETY: the caller's arguments.
        return or_give_back(|| unsafe { real::accept()(fd, address, length) });
    }
    // SAFETY: the caller's arguments.
    unsafe { accept4(fd, address, length, 0) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn shutdown(fd: c_int, how: c_int) -> c_int {
    // SAFETY: numbers only.
    let kernel = || unsafe { real::shutdown()(fd, how) };
    match table::get(fd).kind() {
        table::Kind::Kernel => kernel(),
        table::Kind::Datagram => {
            inside(|| stack_datagrams::leave(fd));
            kernel()
        }
        // An unconnected socket: the kernel remembers it although it says ENOTCONN, so it keeps it.
        table::Kind::Unbound => {
            if (libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how) {
                inside(|| shadow::leave_to_kernel(fd, Reason::Option));
            }
            kernel()
        }
        table::Kind::Listener => finish(inside(|| stack_listen::shutdown(fd, how)), || -1) as c_int,
        _ => finish(inside(|| stack_shutdown::shutdown(fd, how)), || {
            kernel() as isize
        }) as c_int,
    }
}

unsafe fn give_name(
    name: Result<([u8; 28], usize), Outcome>,
    address: *mut sockaddr,
    length: *mut socklen_t,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let (bytes, count) = match name {
        Ok(name) => name,
        Err(outcome) => return finish(outcome, || real() as isize) as c_int,
    };
    if is_wild(address) || is_wild(length) {
        return fail(libc::EFAULT);
    }
    // SAFETY: the man page promises a readable length.
    let room = unsafe { *length } as usize;
    if room as i32 <= -1 {
        return fail(libc::EINVAL);
    }
    // SAFETY: and an address of that many writable bytes.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), address.cast(), count.min(room)) };
    // SAFETY: and a writable length.
    unsafe { *length = count as socklen_t };
    0
}

#[no_mangle]
pub unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::getsockname()(fd, address, length) };
    if table::is_kernel(fd) {
        return kernel();
    }
    // SAFETY: the caller's arguments.
    unsafe { give_name(inside(|| options::name(fd, false)), address, length, kernel) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::getpeername()(fd, address, length) };
    if table::is_kernel(fd) {
        return kernel();
    }
    // SAFETY: the caller's arguments.
    unsafe { give_name(inside(|| options::name(fd, true)), address, length, kernel) }
}

/// The kernel takes lengths for signed ones.
fn is_negative(length: socklen_t) -> bool {
    length > i32::MAX as socklen_t
}

#[no_mangle]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::setsockopt()(fd, level, name, value, length) };
    if table::is_datagram(fd) {
        let result = kernel();
        if result == 0 {
            inside(|| stack_datagrams::option_set(fd, level, name));
        }
        return result;
    }
    // The kernel says what is wrong with these.
    if table::is_kernel(fd) || is_wild(value) || is_negative(length) {
        return kernel();
    }
    // SAFETY: setsockopt(2) promises `length` readable bytes.
    let bytes =
        unsafe { core::slice::from_raw_parts(value.cast::<u8>(), (length as usize).min(4096)) };
    finish(inside(|| options::set(fd, level, name, bytes)), || {
        kernel() as isize
    }) as c_int
}

#[no_mangle]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::getsockopt()(fd, level, name, value, length) };
    if table::is_kernel(fd) || is_wild(value) || is_wild(length) {
        return kernel();
    }
    // SAFETY: a length, by getsockopt(2).
    if is_negative(unsafe { *length }) {
        return kernel();
    }
    match inside(|| options::get(fd, level, name)) {
        Ok(bytes) => {
            // SAFETY: getsockopt(2) promises a readable length.
            let room = unsafe { *length } as usize;
            if (level, name) == (libc::SOL_SOCKET, libc::SO_PEERNAME) && room > bytes.len() {
                return fail(libc::EINVAL);
            }
            let count = bytes.len().min(room);
            // SAFETY: and a value of that many writable bytes.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), value.cast(), count) };
            // SAFETY: and a writable length.
            unsafe { *length = count as socklen_t };
            0
        }
        Err(outcome) => finish(outcome, || kernel() as isize) as c_int,
    }
}
