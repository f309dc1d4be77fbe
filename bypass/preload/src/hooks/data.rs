//! Reading and writing.

use core::ffi::{c_int, c_uint, c_void};

use bypass_stack::operations::descriptors::{is_hidden, visible};
use bypass_stack::operations::{
    options, read as stack_read, sendfile as stack_sendfile, splice as stack_splice,
    write as stack_write,
};
use bypass_stack::process::deferral::inside;
use bypass_stack::process::table;
use bypass_stack::Outcome;
use bypass_sys::iovec::Pieces;
use libc::{iovec, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use super::fortified::check_room;
use super::waiting::of_timespec;
use super::{control, datagrams, rights};

use crate::address::{is_kernels, is_wild};
use crate::cancel::point;
use crate::outcome::{errno, fail, finish, set_errno};
use crate::real;

/// UIO_MAXIOV of the kernel.
const PIECES_MAX: usize = 1024;

fn one(at: *const c_void, length: size_t) -> [iovec; 1] {
    // The kernel moves no more than this in one call either.
    [iovec {
        iov_base: at.cast_mut(),
        iov_len: length.min(0x7fff_f000),
    }]
}

#[inline(always)]
unsafe fn get(fd: c_int, at: *mut c_void, length: size_t, flags: c_int) -> Outcome {
    if is_wild(at) && (length > 0 || is_kernels(at)) {
        return get_nowhere(fd, at, length, flags);
    }
    let piece = one(at, length);
    // SAFETY: the caller promises a writable buffer.
    match unsafe { Pieces::new(&piece) } {
        Some(mut pieces) => inside(|| stack_read::read(fd, &mut pieces, flags)),
        None => Outcome::Error(libc::EINVAL),
    }
}

#[inline(always)]
unsafe fn put(fd: c_int, at: *const c_void, length: size_t, flags: c_int) -> Outcome {
    if is_wild(at) && (length > 0 || is_kernels(at)) {
        return put_from_nowhere(fd, at, flags);
    }
    let piece = one(at, length);
    // SAFETY: the caller promises a readable buffer; writing only reads it.
    match unsafe { Pieces::new(&piece) } {
        Some(mut pieces) => inside(|| stack_write::write(fd, &mut pieces, flags)),
        None => Outcome::Error(libc::EINVAL),
    }
}

/// Reads to an address that is [wild](is_wild): EFAULT once there is something, unless it is thrown away.
#[cold]
fn get_nowhere(fd: c_int, at: *const c_void, length: size_t, flags: c_int) -> Outcome {
    if is_kernels(at) {
        // The kernel says so of the shadow, too.
        return Outcome::Kernel;
    }
    let is_urgent = flags & libc::MSG_OOB != 0;
    let is_thrown_away = flags & libc::MSG_TRUNC != 0 && !is_urgent;
    let looks = match is_thrown_away {
        true => flags,
        false => flags | libc::MSG_PEEK | libc::MSG_TRUNC,
    };
    let piece = one(at, if is_urgent { 0 } else { length });
    // SAFETY: a read with MSG_TRUNC touches no buffer, nor does one of no bytes.
    let Some(mut pieces) = (unsafe { Pieces::new(&piece) }) else {
        return Outcome::Error(libc::EINVAL);
    };
    match inside(|| stack_read::read(fd, &mut pieces, looks)) {
        Outcome::Done(count) if !is_thrown_away && (count > 0 || is_urgent) => {
            Outcome::Error(libc::EFAULT)
        }
        other => other,
    }
}

/// Writes from such an address: EFAULT where the socket takes bytes at all.
#[cold]
fn put_from_nowhere(fd: c_int, at: *const c_void, flags: c_int) -> Outcome {
    if is_kernels(at) {
        return Outcome::Kernel;
    }
    // SAFETY: no buffer at all.
    let Some(mut nothing) = (unsafe { Pieces::new(&[]) }) else {
        return Outcome::Error(libc::EINVAL);
    };
    match inside(|| stack_write::write(fd, &mut nothing, flags)) {
        Outcome::Done(_) => Outcome::Error(libc::EFAULT),
        other => other,
    }
}

/// The buffers of a call that reads them; None where one is [wild](is_wild), too.
unsafe fn touched<'a>(pieces: *const iovec, count: usize) -> Option<Pieces<'a>> {
    // SAFETY: the caller's buffers.
    let all = unsafe { many(pieces, count) }?;
    // SAFETY: an array that was just looked at.
    match unsafe { before_wild(pieces, count) } {
        Some(_) => None,
        None => Some(all),
    }
}

/// The buffers of a call that fills them, up to the first that is [wild](is_wild); None where no byte is before that.
unsafe fn filled<'a>(pieces: *const iovec, count: usize) -> Option<Pieces<'a>> {
    // SAFETY: the caller's buffers.
    let mut all = unsafe { many(pieces, count) }?;
    // SAFETY: an array that was just looked at.
    match unsafe { before_wild(pieces, count) } {
        Some(0) => return None,
        Some(before) => all.limit(before),
        None => {}
    }
    Some(all)
}

/// The bytes before the first buffer that is wild, if one is.
unsafe fn before_wild(pieces: *const iovec, count: usize) -> Option<usize> {
    if count == 0 {
        return None;
    }
    // SAFETY: the caller promises an array of that many buffers.
    let each = unsafe { core::slice::from_raw_parts(pieces, count) };
    let is_bad = |piece: &iovec| piece.iov_len > 0 && is_wild(piece.iov_base);
    let bad = each.iter().position(is_bad)?;
    Some(each[..bad].iter().map(|piece| piece.iov_len).sum())
}

unsafe fn many<'a>(pieces: *const iovec, count: usize) -> Option<Pieces<'a>> {
    if count > PIECES_MAX || (is_wild(pieces) && count > 0) {
        return None;
    }
    if count == 0 {
        // SAFETY: no buffer at all.
        return unsafe { Pieces::new(&[]) };
    }
    // SAFETY: the caller promises an array of that many buffers.
    let slice = unsafe { core::slice::from_raw_parts(pieces, count) };
    // SAFETY: and that each may be used for its length.
    unsafe { Pieces::new(slice) }
}

/// read, readv and writev of no bytes end in the kernel before they reach the socket: with 0, whether it is connected
/// or not. The shadow gives that answer.
#[inline]
fn is_answered_by_shadow(fd: c_int, wanted: usize) -> bool {
    wanted == 0 && table::is_socket(fd)
}

/// Nobody wants to know the sender.
const NOBODY: (*mut sockaddr, *mut socklen_t) = (core::ptr::null_mut(), core::ptr::null_mut());
/// To whom the socket is connected with.
const TO_PEER: (*const sockaddr, socklen_t) = (core::ptr::null(), 0);

/// A datagram, where the socket is one of UDP and an engine can send it; None: the kernel is to.
#[inline]
unsafe fn sent(
    fd: c_int,
    piece: &[iovec],
    flags: c_int,
    to: (*const sockaddr, socklen_t),
) -> Option<ssize_t> {
    if !table::is_datagram(fd) {
        return None;
    }
    // SAFETY: the caller's buffer, which is only read.
    let pieces = unsafe { Pieces::new(piece) };
    // SAFETY: as above, and the caller's name.
    unsafe { datagrams::send(fd, pieces.as_ref(), flags, to) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn read(fd: c_int, at: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::read()(fd, at, length) };
    if table::is_kernel(fd) {
        // Nothing is received by a read of no bytes.
        if table::is_datagram(fd) && length > 0 {
            // SAFETY: the caller's buffer.
            return unsafe { datagrams::receive_from(fd, &one(at, length), 0, NOBODY) };
        }
        return kernel();
    }
    if is_answered_by_shadow(fd, length) {
        return kernel();
    }
    // SAFETY: the caller's buffer.
    point(|| unsafe { get(fd, at, length, 0) }, kernel)
}

#[no_mangle]
pub unsafe extern "C-unwind" fn write(fd: c_int, at: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::write()(fd, at, length) };
    if table::is_kernel(fd) {
        // SAFETY: the caller's buffer.
        return unsafe { sent(fd, &one(at, length), 0, TO_PEER) }.unwrap_or_else(kernel);
    }
    // SAFETY: the caller's buffer.
    point(|| unsafe { put(fd, at, length, 0) }, kernel)
}

#[no_mangle]
pub unsafe extern "C-unwind" fn recv(
    fd: c_int,
    at: *mut c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::recv()(fd, at, length, flags) };
    if table::is_kernel(fd) {
        if table::is_datagram(fd) {
            // SAFETY: the caller's buffer.
            return unsafe { datagrams::receive_from(fd, &one(at, length), flags, NOBODY) };
        }
        return kernel();
    }
    // SAFETY: the caller's buffer.
    point(|| unsafe { get(fd, at, length, flags) }, kernel)
}

#[no_mangle]
pub unsafe extern "C-unwind" fn send(
    fd: c_int,
    at: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::send()(fd, at, length, flags) };
    if table::is_kernel(fd) {
        // SAFETY: the caller's buffer.
        return unsafe { sent(fd, &one(at, length), flags, TO_PEER) }.unwrap_or_else(kernel);
    }
    // SAFETY: the caller's buffer.
    point(|| unsafe { put(fd, at, length, flags) }, kernel)
}

#[no_mangle]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    at: *mut c_void,
    length: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::recvfrom()(fd, at, length, flags, address, address_length) };
    if table::is_kernel(fd) {
        if table::is_datagram(fd) {
            let name = (address, address_length);
            // SAFETY: the caller's buffer and name.
            return unsafe { datagrams::receive_from(fd, &one(at, length), flags, name) };
        }
        return kernel();
    }
    // SAFETY: the caller's buffer.
    let result = point(|| unsafe { get(fd, at, length, flags) }, kernel);
    if result < 0 || address.is_null() || table::is_kernel(fd) {
        return result;
    }
    if is_wild(address_length) {
        return fail(libc::EFAULT) as ssize_t;
    }
    // SAFETY: a length, by recvfrom(2).
    let room = unsafe { &mut *address_length };
    if *room > i32::MAX as socklen_t {
        return fail(libc::EINVAL) as ssize_t;
    }
    // A stream has no sender's address.
    *room = 0;
    result
}

#[no_mangle]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    at: *const c_void,
    length: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::sendto()(fd, at, length, flags, address, address_length) };
    if table::is_kernel(fd) {
        let to = (address, address_length);
        // SAFETY: the caller's buffer and name.
        return unsafe { sent(fd, &one(at, length), flags, to) }.unwrap_or_else(kernel);
    }
    let has_name = !address.is_null();
    let is_too_long = address_length as usize > size_of::<libc::sockaddr_storage>();
    if has_name && (is_wild(address) || is_too_long) {
        // A connection ignores it, but the kernel copies it first, and says what is wrong.
        return kernel();
    }
    // SAFETY: the caller's buffer.
    point(|| unsafe { put(fd, at, length, flags) }, kernel)
}

#[no_mangle]
pub unsafe extern "C-unwind" fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::readv()(fd, pieces, count) };
    if table::is_kernel(fd) {
        // SAFETY: the caller's buffers.
        return unsafe { read_datagram(fd, pieces, count, 0) }.unwrap_or_else(kernel);
    }
    // SAFETY: the caller's buffers.
    unsafe { read_pieces(fd, pieces, count, 0, kernel) }
}

/// readv from a UDP socket that may have datagrams over packets, with flags of recv(2); None: the kernel is to.
pub(super) unsafe fn read_datagram(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    flags: c_int,
) -> Option<ssize_t> {
    if !table::is_datagram(fd) {
        return None;
    }
    // SAFETY: the caller's buffers.
    unsafe { many(pieces, count as usize) }.filter(|room| room.left() > 0)?;
    // SAFETY: an array that was just looked at.
    let pieces = unsafe { core::slice::from_raw_parts(pieces, count as usize) };
    // SAFETY: the caller's buffers.
    Some(unsafe { datagrams::receive_from(fd, pieces, flags, NOBODY) })
}

/// readv from a socket of ours, with flags of recv(2).
pub(super) unsafe fn read_pieces(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    flags: c_int,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's buffers.
    match unsafe { filled(pieces, count as usize) } {
        Some(pieces) if is_answered_by_shadow(fd, pieces.left()) => kernel(),
        Some(mut pieces) => point(
            || inside(|| stack_read::read(fd, &mut pieces, flags)),
            kernel,
        ),
        None => fail(wrong_vector(pieces, count as usize)) as ssize_t,
    }
}

/// The kernel's error for impossible buffers: too many or a negative length are looked for
/// in all of them first, then addresses beyond those of programs.
#[cold]
fn wrong_vector(pieces: *const iovec, count: usize) -> c_int {
    if count > PIECES_MAX {
        return libc::EINVAL;
    }
    if is_wild(pieces) {
        return libc::EFAULT;
    }
    // SAFETY: the caller promises an array of that many buffers.
    let all = unsafe { core::slice::from_raw_parts(pieces, count) };
    if all.iter().any(|piece| piece.iov_len > isize::MAX as usize) {
        return libc::EINVAL;
    }
    libc::EFAULT
}

#[no_mangle]
pub unsafe extern "C-unwind" fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::writev()(fd, pieces, count) };
    if table::is_kernel(fd) {
        // SAFETY: the caller's buffers.
        return unsafe { write_datagram(fd, pieces, count, 0) }.unwrap_or_else(kernel);
    }
    // SAFETY: the caller's buffers.
    unsafe { write_pieces(fd, pieces, count, 0, kernel) }
}

/// writev to a UDP socket that an engine may serve, with flags of send(2); None: the kernel is to.
pub(super) unsafe fn write_datagram(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    flags: c_int,
) -> Option<ssize_t> {
    if !table::is_datagram(fd) {
        return None;
    }
    // SAFETY: the caller's buffers.
    let pieces = unsafe { many(pieces, count as usize) };
    // SAFETY: as above.
    unsafe { datagrams::send(fd, pieces.as_ref(), flags, TO_PEER) }
}

/// writev to a socket of ours, with flags of send(2).
pub(super) unsafe fn write_pieces(
    fd: c_int,
    pieces: *const iovec,
    count: c_int,
    flags: c_int,
    kernel: impl Fn() -> ssize_t,
) -> ssize_t {
    // SAFETY: the caller's buffers.
    match unsafe { touched(pieces, count as usize) } {
        Some(pieces) if is_answered_by_shadow(fd, pieces.left()) => kernel(),
        Some(mut pieces) => point(
            || inside(|| stack_write::write(fd, &mut pieces, flags)),
            kernel,
        ),
        None => fail(wrong_vector(pieces, count as usize)) as ssize_t,
    }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::recvmsg()(fd, message, flags) };
    if is_wild(message) {
        return kernel();
    }
    if table::is_kernel(fd) {
        // SAFETY: null or a header, by recvmsg(2).
        if let Some(header) = unsafe { message.as_mut() }.filter(|_| table::is_datagram(fd)) {
            // SAFETY: the header's buffers are the caller's.
            if let Some(pieces) = unsafe { many(header.msg_iov, header.msg_iovlen) } {
                // SAFETY: the caller's header.
                return unsafe { datagrams::receive(fd, header, &pieces, flags) };
            }
        }
        let result = kernel();
        // SAFETY: a call that worked was given a header, and has filled it.
        if result >= 0 && unsafe { (*message).msg_controllen } > 0 {
            // SAFETY: as above.
            unsafe { rights::after_receiving(message, flags) };
        }
        return result;
    }
    // SAFETY: a header, by recvmsg(2).
    let Some(header) = (unsafe { message.as_mut() }) else {
        return kernel();
    };
    if has_negative_name(header) {
        return fail(libc::EINVAL) as ssize_t;
    }
    // SAFETY: the header's buffers are the caller's.
    let pieces = unsafe {
        match flags & libc::MSG_TRUNC {
            0 => filled(header.msg_iov, header.msg_iovlen),
            _ => many(header.msg_iov, header.msg_iovlen),
        }
    };
    let Some(mut pieces) = pieces else {
        return fail(wrong_message(header)) as ssize_t;
    };
    let result = point(
        || inside(|| stack_read::read(fd, &mut pieces, flags)),
        kernel,
    );
    if result >= 0 && !table::is_kernel(fd) {
        if !header.msg_name.is_null() {
            header.msg_namelen = 0;
        }
        header.msg_controllen = 0;
        header.msg_flags = flags & (libc::MSG_OOB | libc::MSG_CMSG_CLOEXEC);
    }
    result
}

#[no_mangle]
pub unsafe extern "C-unwind" fn sendmsg(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::sendmsg()(fd, message, flags) };
    if is_wild(message) {
        return kernel();
    }
    if table::is_kernel(fd) {
        // SAFETY: null or a header, by sendmsg(2).
        let header = unsafe { message.as_ref() };
        if let Some(header) = header.filter(|_| table::is_datagram(fd)) {
            // SAFETY: the caller's buffers.
            let pieces = unsafe { many(header.msg_iov, header.msg_iovlen) };
            // SAFETY: the caller's header.
            let sent = unsafe { datagrams::send_message(fd, header, pieces.as_ref(), flags) };
            return sent.unwrap_or_else(kernel);
        }
        if header.is_none_or(|header| header.msg_controllen == 0) {
            return kernel();
        }
        // SAFETY: as above.
        unsafe {
            if rights::is_refused(fd, message) {
                return fail(libc::EBADF) as ssize_t;
            }
            rights::before_sending(message);
        }
        let result = kernel();
        if result < 0 {
            let error = errno();
            // SAFETY: as above.
            unsafe { rights::after_failing(message) };
            set_errno(error);
        }
        return result;
    }
    // SAFETY: a header, by sendmsg(2).
    let header = unsafe { &*message };
    if has_negative_name(header) {
        return fail(libc::EINVAL) as ssize_t;
    }
    if !header.msg_name.is_null() && header.msg_namelen > 0 && is_wild(header.msg_name) {
        // A connection ignores the name, but the kernel copies it first.
        return fail(libc::EFAULT) as ssize_t;
    }
    // SAFETY: the header's buffers are the caller's.
    match unsafe { touched(header.msg_iov, header.msg_iovlen) } {
        Some(_) if header.msg_controllen > 0 && is_wrong(fd, header) => -1,
        Some(mut pieces) => point(
            || inside(|| stack_write::write(fd, &mut pieces, flags)),
            kernel,
        ),
        None => fail(wrong_message(header)) as ssize_t,
    }
}

/// The kernel takes the length for a signed one, and looks at it before anything else.
fn has_negative_name(header: &msghdr) -> bool {
    !header.msg_name.is_null() && header.msg_namelen > i32::MAX as socklen_t
}

/// Whether the message's control part is refused, as by the kernel: errno says why then.
#[cold]
fn is_wrong(fd: c_int, header: &msghdr) -> bool {
    // SAFETY: the caller of sendmsg promises a control part of the length that the header says.
    let error = unsafe { control::error(header) };
    let is_connected = table::get(fd).kind() == table::Kind::Connected;
    error.filter(|_| is_connected).map(fail).is_some()
}

#[cold]
fn wrong_message(header: &msghdr) -> c_int {
    if header.msg_iovlen > PIECES_MAX {
        return libc::EMSGSIZE;
    }
    wrong_vector(header.msg_iov, header.msg_iovlen)
}

#[no_mangle]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut libc::timespec,
) -> c_int {
    let is_plain = table::is_kernel(fd) && !table::is_datagram(fd);
    if is_plain || is_wild(messages) {
        // SAFETY: the caller's arguments.
        let received = unsafe { real::recvmmsg()(fd, messages, count, flags, timeout) };
        // SAFETY: headers that were filled.
        let look = |header| unsafe { rights::after_receiving(header, flags) };
        // SAFETY: so many were.
        unsafe { rights::each_of(messages, received.max(0) as c_uint, look) };
        return received;
    }
    // SAFETY: null or a time, by recvmmsg(2).
    let wait = match unsafe { of_timespec(timeout) } {
        Ok(wait) => wait,
        Err(error) => return fail(error),
    };
    if let Some(error) = inside(|| options::take_error(fd)) {
        return fail(error);
    }
    let start = std::time::Instant::now();
    // The time is looked at between messages only.
    let is_late = || wait.is_some_and(|wait| start.elapsed() >= wait);
    let first = flags & !libc::MSG_WAITFORONE;
    let later = match flags & libc::MSG_WAITFORONE {
        0 => first,
        _ => first | libc::MSG_DONTWAIT,
    };
    let received = each_message(messages, count, |index, header| {
        if index > 0 && is_late() {
            return -1;
        }
        // SAFETY: a header of the caller's array.
        let received = unsafe { recvmsg(fd, header, if index == 0 { first } else { later }) };
        if received < 0 && index > 0 {
            let error = errno();
            inside(|| options::keep_error(fd, error));
        }
        received
    });
    // SAFETY: null or a time, by recvmmsg(2).
    if let (Some(timeout), Some(wait), 0..) = (unsafe { timeout.as_mut() }, wait, received) {
        let left = wait.saturating_sub(start.elapsed());
        timeout.tv_sec = left.as_secs() as libc::time_t;
        timeout.tv_nsec = left.subsec_nanos().into();
    }
    received
}

#[no_mangle]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut libc::mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    if is_wild(messages) {
        // SAFETY: the caller's arguments.
        return unsafe { real::sendmmsg()(fd, messages, count, flags) };
    }
    if table::is_kernel(fd) && !table::is_datagram(fd) {
        // The kernel stops before a message that it refuses, and says why of the first only.
        // SAFETY: the caller's array.
        let count = match unsafe { rights::first_refused(fd, messages, count) } {
            Some(0) => return fail(libc::EBADF),
            Some(first) => first,
            None => count,
        };
        // SAFETY: headers of the caller's.
        let before = |header| unsafe { rights::before_sending(header) };
        // SAFETY: the caller's array.
        unsafe { rights::each_of(messages, count, before) };
        // SAFETY: the caller's arguments.
        let sent = unsafe { real::sendmmsg()(fd, messages, count, flags) };
        let error = errno();
        let unsent = (sent.max(0) as c_uint).min(count);
        // SAFETY: headers of the caller's.
        let after = |header| unsafe { rights::after_failing(header) };
        // SAFETY: the rest of the caller's array.
        unsafe {
            let count = count.min(rights::MESSAGES_MAX as c_uint);
            let rest = messages.add(unsent as usize);
            rights::each_of(rest, count.saturating_sub(unsent), after);
        }
        set_errno(error);
        return sent;
    }
    // As the kernel stops behind a message that a connection has taken a part of: its rest would be lost.
    let mut is_cut = false;
    each_message(messages, count, |_, header| {
        if is_cut {
            return -1;
        }
        // SAFETY: a header of the caller's array.
        let sent = unsafe { sendmsg(fd, header, flags) };
        // SAFETY: as above, with the pieces that it names.
        let wanted = unsafe { length_of(&*header) };
        is_cut = sent >= 0 && (sent as usize) < wanted;
        sent
    })
}

/// Bytes of a message.
///
/// # Safety
/// The header names so many pieces.
unsafe fn length_of(header: &msghdr) -> usize {
    if header.msg_iov.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let pieces = unsafe { core::slice::from_raw_parts(header.msg_iov, header.msg_iovlen) };
    pieces
        .iter()
        .fold(0, |sum, piece| sum.saturating_add(piece.iov_len))
}

fn each_message(
    messages: *mut libc::mmsghdr,
    count: c_uint,
    mut work: impl FnMut(c_uint, *mut msghdr) -> ssize_t,
) -> c_int {
    // No more in one call than the kernel takes.
    let count = count.min(PIECES_MAX as c_uint);
    for index in 0..count {
        // SAFETY: the caller promises an array of `count` messages.
        let message = unsafe { &mut *messages.add(index as usize) };
        match work(index, &mut message.msg_hdr) {
            moved if moved >= 0 => message.msg_len = moved as c_uint,
            _ if index > 0 => return index as c_int,
            _ => return -1,
        }
    }
    count as c_int
}

#[no_mangle]
pub unsafe extern "C-unwind" fn sendfile(
    out: c_int,
    file: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::sendfile()(out, file, offset, count) };
    if !table::is_kernel(file) && offset.is_null() && stack_splice::is_pipe(out) == Ok(true) {
        // The kernel does what splice does, and says of other sockets that it cannot.
        let work = || inside(|| stack_splice::splice(file, out, count, 0, [false; 2]));
        return finish(work(), kernel);
    }
    if is_hidden(file) || is_hidden(out) {
        // The kernel says so, or of another argument what it looks at before.
        // SAFETY: the caller's arguments, of which the numbers are none.
        return unsafe { real::sendfile()(visible(out), visible(file), offset, count) };
    }
    let has_wild_offset = !offset.is_null() && is_wild(offset);
    if table::is_kernel(out) || !table::is_kernel(file) || has_wild_offset {
        return kernel();
    }
    // SAFETY: null or an offset, by sendfile(2).
    let place = unsafe { offset.as_mut() };
    let start = match place.as_deref() {
        Some(start) => *start,
        None => match stack_sendfile::position(file) {
            Ok(start) => start,
            Err(libc::EBADF) => return fail(libc::EBADF) as ssize_t,
            Err(_) => return fail(libc::EINVAL) as ssize_t,
        },
    };
    let outcome = inside(|| stack_sendfile::send(out, file, start, count));
    let moved = match outcome {
        Outcome::Done(moved) => moved as off_t,
        other => return finish(other, kernel),
    };
    match place {
        Some(place) => *place = start + moved,
        None => drop(stack_sendfile::set_position(file, start + moved)),
    }
    moved as ssize_t
}

#[no_mangle]
pub unsafe extern "C-unwind" fn sendfile64(
    out: c_int,
    file: c_int,
    offset: *mut off_t,
    count: size_t,
) -> ssize_t {
    // SAFETY: the caller's arguments; off_t has 64 bits here.
    unsafe { sendfile(out, file, offset, count) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_offset: *mut off_t,
    to: c_int,
    to_offset: *mut off_t,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    let (from, to) = (visible(from), visible(to));
    if table::is_kernel(from) && table::is_kernel(to) {
        // SAFETY: the caller's arguments.
        return unsafe { real::splice()(from, from_offset, to, to_offset, length, flags) };
    }
    let has_offset = [from_offset, to_offset].map(|offset| !offset.is_null());
    let work = || inside(|| stack_splice::splice(from, to, length, flags, has_offset));
    point(work, || {
        // SAFETY: the caller's arguments.
        unsafe { real::splice()(from, from_offset, to, to_offset, length, flags) }
    })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn __read_chk(
    fd: c_int,
    at: *mut c_void,
    length: size_t,
    room: size_t,
) -> ssize_t {
    check_room(length, room);
    // SAFETY: the caller's buffer has room.
    unsafe { read(fd, at, length) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn __recv_chk(
    fd: c_int,
    at: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
) -> ssize_t {
    check_room(length, room);
    // SAFETY: the caller's buffer has room.
    unsafe { recv(fd, at, length, flags) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    at: *mut c_void,
    length: size_t,
    room: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> ssize_t {
    check_room(length, room);
    // SAFETY: the caller's buffer has room.
    unsafe { recvfrom(fd, at, length, flags, address, address_length) }
}
