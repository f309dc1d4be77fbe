//! io_uring: libuv's rings and those of the shared liburing. What is done through a ring is not seen here, so a process with one is left to the
//! kernel. libuv makes a ring for its epoll_ctl calls alone, and does without where there is none.

use core::ffi::{c_int, c_long, c_uint, c_void};
use std::path::Path;

use bypass_stack::listener;
use bypass_stack::operations::datagrams;
use bypass_stack::process::deferral::inside;
use bypass_stack::process::{table, uring};

use crate::address::is_wild;
use crate::real;

/// Sizes that libuv asks for: its loop's ring has 256 entries, that for files 64.
const LIBUV_ENTRIES: [u32; 2] = [256, 64];
/// IORING_SETUP_SQPOLL and IORING_SETUP_NO_SQARRAY of linux/io_uring.h.
const LIBUV_FLAGS: u32 = 1 << 1 | 1 << 16;
/// Whether libuv may use io_uring; see `start`.
pub const LIBUV_SWITCH: &str = "UV_USE_IO_URING";

/// Turns libuv's rings off unless the environment sets the switch. Some of its versions look at this for files
/// only, hence [`is_libuvs`].
pub fn switch_libuv_off() {
    if std::env::var_os(LIBUV_SWITCH).is_none() {
        std::env::set_var(LIBUV_SWITCH, "0");
    }
}

/// Whether a ring with these entries and `flags` is asked for by libuv of its own accord.
#[cold]
pub fn is_libuvs(entries: u32, flags: u32) -> bool {
    let is_off = std::env::var_os(LIBUV_SWITCH).is_some_and(|value| value == "0");
    is_off && LIBUV_ENTRIES.contains(&entries) && flags & !LIBUV_FLAGS == 0 && has_libuv()
}

/// Whether libuv is in this process: as a library, in uvloop, or in Node.
fn has_libuv() -> bool {
    let program = std::env::current_exe().unwrap_or_default();
    let name = program.file_name().unwrap_or_default();
    if name == "node" || name == "nodejs" {
        return true;
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().any(|line| {
        let path = Path::new(line.rsplit(' ').next().unwrap_or(""));
        let is_library = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("libuv.so"));
        is_library || path.iter().any(|part| part == "uvloop")
    })
}

/// After a call that makes a ring of which nothing that is submitted is seen.
pub fn made_unseen(result: c_long) -> c_long {
    if result >= 0 && listener::are_attended() {
        inside(listener::use_hidden_sockets);
    }
    result
}

/// The start of the kernel's `struct iocb` (linux/aio_abi.h).
#[repr(C)]
pub struct Control {
    data: u64,
    key: u64,
    code: u16,
    priority: i16,
    fd: u32,
}

/// Before requests of Linux AIO are submitted: one that waits for a descriptor (IOCB_CMD_POLL) would see what the kernel
/// knows of it, so new sockets of such a program are not accelerated from then on. Reads and writes of files are not meant.
///
/// # Safety
/// `requests` leads to `count` pointers to requests, as io_submit(2) demands.
pub unsafe fn before_aio(count: c_long, requests: *const *const Control) {
    const POLL: u16 = 5;
    // The kernel takes no more than the context has room for, of which all contexts share so much (fs.aio-max-nr).
    const COUNT_MAX: usize = 65_536;
    let count = usize::try_from(count).unwrap_or(0).min(COUNT_MAX);
    if count == 0 || is_wild(requests) || uring::hides_sockets() {
        return;
    }
    // Those before the first that the kernel refuses.
    // SAFETY: the caller's promise.
    let given = (0..count).map(|index| unsafe { *requests.add(index) });
    let mut taken = given.take_while(|one| !is_wild(*one));
    // SAFETY: as above.
    if taken.any(|one| unsafe { (*one).code } == POLL) {
        inside(listener::use_hidden_sockets);
    }
}

/// libaio's, which makes the system call itself.
#[no_mangle]
pub unsafe extern "C-unwind" fn io_submit(
    context: *mut c_void,
    count: c_long,
    requests: *mut *mut Control,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { before_aio(count, requests.cast_const().cast()) };
    // SAFETY: as above.
    unsafe { real::io_submit()(context, count, requests.cast()) }
}

/// The start of liburing's `struct io_uring`, which all versions of its shared library have in common.
#[repr(C)]
pub struct Ring {
    head: *mut c_uint,
    tail: *mut c_uint,
    mask: *mut c_uint,
    entries: *mut c_uint,
    flags: *mut c_uint,
    dropped: *mut c_uint,
    array: *mut c_uint,
    submissions: *const Submission,
    first: c_uint,
    next: c_uint,
    bytes: usize,
    memory: *mut c_void,
    padding: [c_uint; 4],
    completions: [usize; 11],
    setup_flags: c_uint,
    fd: c_int,
}

/// The start of `struct io_uring_sqe`, 64 bytes long.
#[repr(C, align(64))]
struct Submission {
    code: u8,
    flags: u8,
    priority: u16,
    fd: c_int,
}

/// IORING_SETUP_SQE128, IORING_SETUP_SQE_MIXED and IORING_SETUP_SQPOLL: longer entries, and a kernel that takes them unasked.
const NOT_SEEN: c_uint = 1 << 10 | 1 << 19 | 1 << 1;
/// IOSQE_FIXED_FILE: the descriptor is an index of a table that is not seen.
const FIXED_FILE: u8 = 1;

/// After liburing has made a ring, or has failed with a negative result.
unsafe fn after_making(ring: *mut Ring, result: c_int) -> c_int {
    if result < 0 {
        return result;
    }
    // SAFETY: a ring that was made.
    let (flags, fd) = unsafe { ((*ring).setup_flags, (*ring).fd) };
    if flags & NOT_SEEN == 0 {
        uring::made(fd);
    } else {
        made_unseen(0);
    }
    result
}

/// Before liburing submits what lies between two cursors of the program's.
unsafe fn before_submitting(ring: *const Ring) {
    // SAFETY: a ring that liburing has made.
    let (ring, mask) = unsafe { (&*ring, *(*ring).mask) };
    let mut at = ring.first;
    while at != ring.next {
        // SAFETY: as many entries as the mask says lie there.
        let one = unsafe { &*ring.submissions.add((at & mask) as usize) };
        let fd = if one.flags & FIXED_FILE != 0 {
            -1
        } else {
            one.fd
        };
        if table::is_datagram(fd) {
            inside(|| datagrams::close(fd));
        }
        if uring::begins_with_sockets(one.code, fd) {
            inside(listener::leave_queues);
        }
        at = at.wrapping_add(1);
    }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn io_uring_queue_init(
    entries: c_uint,
    ring: *mut Ring,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::io_uring_queue_init()(entries, ring.cast(), flags) };
    // SAFETY: as above.
    unsafe { after_making(ring, result) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn io_uring_queue_init_params(
    entries: c_uint,
    ring: *mut Ring,
    parameters: *mut c_void,
) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::io_uring_queue_init_params()(entries, ring.cast(), parameters) };
    // SAFETY: as above.
    unsafe { after_making(ring, result) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn io_uring_queue_init_mem(
    entries: c_uint,
    ring: *mut Ring,
    parameters: *mut c_void,
    memory: *mut c_void,
    bytes: usize,
) -> c_int {
    let real = real::io_uring_queue_init_mem();
    // SAFETY: the caller's arguments.
    let result = unsafe { real(entries, ring.cast(), parameters, memory, bytes) };
    // SAFETY: as above.
    unsafe { after_making(ring, result) }
}

/// liburing's form of the system call: submissions to such a ring need not go through liburing.
#[no_mangle]
pub unsafe extern "C-unwind" fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
    // SAFETY: the caller's arguments.
    let result = unsafe { real::io_uring_setup()(entries, parameters) };
    made_unseen(result.into());
    result
}

#[no_mangle]
pub unsafe extern "C-unwind" fn io_uring_queue_exit(ring: *mut Ring) {
    // SAFETY: the caller's ring.
    let was_last = uring::gone(unsafe { (*ring).fd });
    // SAFETY: the caller's arguments.
    unsafe { real::io_uring_queue_exit()(ring.cast()) };
    if was_last {
        inside(listener::publish_all);
    }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn io_uring_submit(ring: *mut Ring) -> c_int {
    // SAFETY: the caller's ring.
    unsafe { before_submitting(ring) };
    // SAFETY: the caller's arguments.
    unsafe { real::io_uring_submit()(ring.cast()) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn io_uring_submit_and_wait(ring: *mut Ring, count: c_uint) -> c_int {
    // SAFETY: the caller's ring.
    unsafe { before_submitting(ring) };
    // SAFETY: the caller's arguments.
    unsafe { real::io_uring_submit_and_wait()(ring.cast(), count) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn io_uring_submit_and_wait_timeout(
    ring: *mut Ring,
    completion: *mut c_void,
    count: c_uint,
    time: *mut c_void,
    mask: *mut c_void,
) -> c_int {
    // SAFETY: the caller's ring.
    unsafe { before_submitting(ring) };
    let real = real::io_uring_submit_and_wait_timeout();
    // SAFETY: the caller's arguments.
    unsafe { real(ring.cast(), completion, count, time, mask) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn io_uring_submit_and_get_events(ring: *mut Ring) -> c_int {
    // SAFETY: the caller's ring.
    unsafe { before_submitting(ring) };
    // SAFETY: the caller's arguments.
    unsafe { real::io_uring_submit_and_get_events()(ring.cast()) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn io_uring_submit_and_wait_min_timeout(
    ring: *mut Ring,
    completion: *mut c_void,
    count: c_uint,
    time: *mut c_void,
    least: c_uint,
    mask: *mut c_void,
) -> c_int {
    // SAFETY: the caller's ring.
    unsafe { before_submitting(ring) };
    let real = real::io_uring_submit_and_wait_min_timeout();
    // SAFETY: the caller's arguments.
    unsafe { real(ring.cast(), completion, count, time, least, mask) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn io_uring_submit_and_wait_reg(
    ring: *mut Ring,
    completion: *mut c_void,
    count: c_uint,
    place: c_int,
) -> c_int {
    // SAFETY: the caller's ring.
    unsafe { before_submitting(ring) };
    let real = real::io_uring_submit_and_wait_reg();
    // SAFETY: the caller's arguments.
    unsafe { real(ring.cast(), completion, count, place) }
}
