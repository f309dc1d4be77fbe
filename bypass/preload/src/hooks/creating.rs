//! Calls that make descriptors of other kinds: the limit counts for the program, so before one of them fails
//! for it the pool gives its numbers back.

use core::ffi::{c_char, c_int, c_uint, CStr};

use bypass_stack::process::deferral::{self, inside};
use bypass_stack::process::later;
use bypass_stack::process::pool;
use bypass_stack::process::wakers;
use bypass_sys::{kernel, numbers};
use libc::{rlimit, sigset_t, DIR, FILE};

use crate::real;

/// A result that says whether its call has failed.
pub trait Made: Copy {
    fn has_failed(self) -> bool;
}

impl Made for c_int {
    fn has_failed(self) -> bool {
        self < 0
    }
}

impl Made for core::ffi::c_long {
    fn has_failed(self) -> bool {
        self < 0
    }
}

impl<T> Made for *mut T {
    fn has_failed(self) -> bool {
        self.is_null()
    }
}

/// Runs a call that takes numbers, and waits for nothing, while none of ours has a low one. Finding libc's function could
/// wait for the loader: callers do so before.
pub fn taking<T>(call: impl FnOnce() -> T) -> T {
    deferral::enter();
    let holding = numbers::hold();
    let result = call();
    drop(holding);
    deferral::leave();
    result
}

/// Runs a call that may wait before it takes a number. Where one of ours was in the way of a standard number, the
/// program gets that after all: it may count on it.
fn taking_late(call: impl FnOnce() -> c_int) -> c_int {
    let look = numbers::look();
    let made = call();
    if made <= libc::STDERR_FILENO || numbers::were_free(look) {
        return made;
    }
    taking(|| standard_for(made)).unwrap_or(made)
}

/// Runs a call whose number does not matter to the program.
fn at_once<T>(call: impl FnOnce() -> T) -> T {
    call()
}

/// A standard number that is free takes the place of `made`.
#[cold]
fn standard_for(made: c_int) -> Option<c_int> {
    let flags = kernel::fcntl(made, libc::F_GETFD, 0).ok()?;
    let is_free = |fd: &c_int| kernel::fcntl(*fd, libc::F_GETFD, 0) == Err(libc::EBADF);
    let free = (libc::STDIN_FILENO..=libc::STDERR_FILENO).find(is_free)?;
    let closes_on_exec = flags as c_int & libc::FD_CLOEXEC != 0;
    let close_on_exec = if closes_on_exec { libc::O_CLOEXEC } else { 0 };
    kernel::dup3(made, free, close_on_exec).ok()?;
    let _ = kernel::close(made);
    Some(free)
}

/// Makes a descriptor, once more if there was none and the pool had some.
#[inline]
pub fn or_give_back<T: Made>(make: impl Fn() -> T) -> T {
    let made = make();
    if made.has_failed() {
        give_back(made, make)
    } else {
        made
    }
}

#[cold]
fn give_back<T: Made>(made: T, make: impl Fn() -> T) -> T {
    let error = crate::outcome::errno();
    let is_short = |made: &T| {
        let error = crate::outcome::errno();
        made.has_failed() && (error == libc::EMFILE || error == libc::ENFILE)
    };
    if !is_short(&made) {
        return made;
    }
    let has_room = inside(pool::give_back) > 0;
    crate::outcome::set_errno(error);
    let made = if has_room { make() } else { made };
    later::beside_service(made, is_short, make)
}

/// Hooks whose only work this is, each with how it takes numbers.
macro_rules! creating {
    ($taking:path: $($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        #[no_mangle]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            let real = real::$name();
            // SAFETY: the caller's arguments.
            or_give_back(|| $taking(|| unsafe { real($($argument),*) }))
        }
    )*};
}

// The mode of open is in the same register whatever its type; off_t has 64 bits here.
creating! {
    taking_late:
    open(path: *const c_char, flags: c_int, mode: usize) -> c_int;
    open64(path: *const c_char, flags: c_int, mode: usize) -> c_int;
    openat(at: c_int, path: *const c_char, flags: c_int, mode: usize) -> c_int;
    openat64(at: c_int, path: *const c_char, flags: c_int, mode: usize) -> c_int;
    __open_2(path: *const c_char, flags: c_int) -> c_int;
    __open64_2(path: *const c_char, flags: c_int) -> c_int;
    __openat_2(at: c_int, path: *const c_char, flags: c_int) -> c_int;
    __openat64_2(at: c_int, path: *const c_char, flags: c_int) -> c_int;
    creat(path: *const c_char, mode: c_uint) -> c_int;
    creat64(path: *const c_char, mode: c_uint) -> c_int;
    shm_open(name: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    posix_openpt(flags: c_int) -> c_int;
}

creating! {
    taking:
    pipe(pair: *mut c_int) -> c_int;
    pipe2(pair: *mut c_int, flags: c_int) -> c_int;
    socketpair(family: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> c_int;
    eventfd(value: c_uint, flags: c_int) -> c_int;
    timerfd_create(clock: c_int, flags: c_int) -> c_int;
    signalfd(fd: c_int, mask: *const sigset_t, flags: c_int) -> c_int;
    inotify_init() -> c_int;
    inotify_init1(flags: c_int) -> c_int;
    memfd_create(name: *const c_char, flags: c_uint) -> c_int;
    pidfd_open(process: libc::pid_t, flags: c_uint) -> c_int;
    fanotify_init(flags: c_uint, event_flags: c_uint) -> c_int;
}

creating! {
    at_once:
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE;
    tmpfile() -> *mut FILE;
    tmpfile64() -> *mut FILE;
    opendir(path: *const c_char) -> *mut DIR;
}

/// Hooks that fill a template in, `$behind` of whose letters follow the six that are filled in.
macro_rules! filling {
    ($($name:ident($($argument:ident: $type:ty),*), $behind:expr;)*) => {$(
        #[no_mangle]
        pub unsafe extern "C" fn $name(template: *mut c_char $(, $argument: $type)*) -> c_int {
            // SAFETY: the caller's template.
            let letters = unsafe { letters_of(template, $behind) };
            or_give_back(|| {
                // A call that failed has filled them in, and is to find them as they were.
                if let Some(letters) = letters {
                    // SAFETY: as above, where six letters were found.
                    unsafe { *letters = FILLED_IN };
                }
                // SAFETY: the caller's arguments.
                taking_late(|| unsafe { real::$name()(template $(, $argument)*) })
            })
        }
    )*};
}

filling! {
    mkstemp(), 0;
    mkostemp(flags: c_int), 0;
    mkstemp64(), 0;
    mkostemp64(flags: c_int), 0;
    mkstemps(suffix: c_int), suffix;
    mkostemps(suffix: c_int, flags: c_int), suffix;
    mkstemps64(suffix: c_int), suffix;
    mkostemps64(suffix: c_int, flags: c_int), suffix;
}

/// What is filled in.
const FILLED_IN: [c_char; 6] = [b'X' as c_char; 6];

/// Where that stands in a template; None where it does not, of which libc says that it is wrong.
unsafe fn letters_of(template: *mut c_char, behind: c_int) -> Option<*mut [c_char; 6]> {
    let behind = usize::try_from(behind).ok()?;
    // SAFETY: the caller's template, which libc reads as well.
    let length = unsafe { CStr::from_ptr(template) }.count_bytes();
    let at = length.checked_sub(behind)?.checked_sub(FILLED_IN.len())?;
    let letters = template.wrapping_add(at).cast::<[c_char; 6]>();
    // SAFETY: within the template.
    (unsafe { *letters } == FILLED_IN).then_some(letters)
}

/// A limit below this leaves no descriptor for a waker.
const FEW: libc::rlim_t = 64;

/// Servers of logins set the limit to next to nothing before they confine themselves.
unsafe fn before_limit(resource: c_int, limit: *const rlimit) {
    // SAFETY: null or a limit, by setrlimit(2).
    let limit = unsafe { limit.as_ref() };
    let is_low = limit.is_some_and(|limit| limit.rlim_cur < FEW);
    if resource == libc::RLIMIT_NOFILE as c_int && is_low {
        inside(wakers::provide_wakers);
    }
}

/// A changed limit changes how much may be kept.
fn after_limit(resource: c_int, result: c_int) -> c_int {
    if resource == libc::RLIMIT_NOFILE as c_int && result == 0 {
        inside(pool::limit_changed);
        wakers::limit_changed();
    }
    result
}

#[no_mangle]
pub unsafe extern "C-unwind" fn setrlimit(resource: c_int, limit: *const rlimit) -> c_int {
    // SAFETY: the caller's limit.
    unsafe { before_limit(resource, limit) };
    // SAFETY: as above.
    if let Some(wider) = unsafe { widened(resource, limit) } {
        // SAFETY: a limit of this frame.
        if unsafe { real::setrlimit()(resource, &wider) } == 0 {
            return 0;
        }
    }
    // SAFETY: the caller's arguments.
    after_limit(resource, unsafe { real::setrlimit()(resource, limit) })
}

/// Address space for the segments of many clients besides what a program grants itself, as dovecot's and
/// vsftpd's workers do. Memory is taken as it is used.
const SEGMENTS_BYTES: u64 = 64 << 30;

/// A limit on address space, with room for ours.
unsafe fn widened(resource: c_int, limit: *const rlimit) -> Option<rlimit> {
    if resource != libc::RLIMIT_AS as c_int || !bypass_stack::process::is_started() {
        return None;
    }
    // SAFETY: null or a limit, by setrlimit(2).
    let limit = unsafe { limit.as_ref() }?;
    Some(rlimit {
        rlim_cur: limit.rlim_cur.saturating_add(SEGMENTS_BYTES),
        rlim_max: limit.rlim_max.saturating_add(SEGMENTS_BYTES),
    })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn setrlimit64(resource: c_int, limit: *const rlimit) -> c_int {
    // SAFETY: the caller's arguments; both structures are the same here.
    unsafe { setrlimit(resource, limit) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn prlimit(
    process: libc::pid_t,
    resource: c_int,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: the caller's limit.
    unsafe { before_limit(resource, new) };
    // SAFETY: the caller's arguments.
    let result = unsafe { real::prlimit()(process, resource, new, old) };
    if new.is_null() {
        return result;
    }
    after_limit(resource, result)
}

#[no_mangle]
pub unsafe extern "C-unwind" fn prlimit64(
    process: libc::pid_t,
    resource: c_int,
    new: *const rlimit,
    old: *mut rlimit,
) -> c_int {
    // SAFETY: the caller's arguments; both structures are the same here.
    unsafe { prlimit(process, resource, new, old) }
}
