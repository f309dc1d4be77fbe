//! epoll, poll and select.

use core::ffi::c_int;
use core::time::Duration;
use std::time::Instant;

use bypass_stack::operations::descriptors;
use bypass_stack::process::deferral::inside;
use bypass_stack::process::table;
use bypass_stack::wait::epoll;
use bypass_stack::wait::poll::{self as stack_poll, Sets};
use bypass_stack::Outcome;
use bypass_sys::kernel::descriptor_limit;
use bypass_sys::numbers;
use bypass_sys::sandbox::is_confined;
use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

use super::fortified::overrun;
use crate::address::is_wild;
use crate::cancel::point;
use crate::outcome::{fail, finish};
use crate::real;

#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_create1(flags: c_int) -> c_int {
    finish(inside(|| descriptors::epoll_create(flags)), || {
        // SAFETY: numbers only.
        unsafe { real::epoll_create1()(flags) as isize }
    }) as c_int
}

#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_create(size: c_int) -> c_int {
    if size <= 0 {
        return fail(libc::EINVAL);
    }
    // SAFETY: numbers only.
    unsafe { epoll_create1(0) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_ctl(
    set: c_int,
    command: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::epoll_ctl()(set, command, fd, event) };
    // The kernel reads the event before it looks at the command.
    let has_no_event = command != libc::EPOLL_CTL_DEL && is_wild(event);
    if has_no_event || table::is_kernel(set) && table::is_kernel(fd) {
        return kernel();
    }
    // SAFETY: null or an event, by epoll_ctl(2).
    let event = unsafe { read_event(event) };
    finish(inside(|| epoll::control(set, command, fd, event)), || {
        kernel() as isize
    }) as c_int
}

/// Reads an event in the pieces in which programs have just written it: flags, the descriptor in the
/// lower half of the data, the upper half. A load across several young stores waits for all of them.
unsafe fn read_event(event: *const epoll_event) -> Option<epoll::Event> {
    if is_wild(event) {
        return None;
    }
    let words: *const u32 = event.cast();
    // SAFETY: an event is three such words without gaps; volatile keeps the loads apart.
    let [events, low, high] = unsafe {
        [
            words.read_volatile(),
            words.add(1).read_volatile(),
            words.add(2).read_volatile(),
        ]
    };
    Some(epoll::Event {
        events,
        data: u64::from(high) << 32 | u64::from(low),
    })
}

fn of_millis(timeout: c_int) -> Option<Duration> {
    u64::try_from(timeout).ok().map(Duration::from_millis)
}

/// None: for ever. Err: not a time.
pub(super) unsafe fn of_timespec(time: *const timespec) -> Result<Option<Duration>, c_int> {
    if !time.is_null() && is_wild(time) {
        return Err(libc::EFAULT);
    }
    // SAFETY: null or a time, by the man pages.
    let Some(time) = (unsafe { time.as_ref() }) else {
        return Ok(None);
    };
    if time.tv_sec < 0 || !(0..1_000_000_000).contains(&time.tv_nsec) {
        return Err(libc::EINVAL);
    }
    Ok(Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32)))
}

/// The kernel's signal set: the first 64 bits of libc's.
unsafe fn of_mask(mask: *const sigset_t) -> Option<u64> {
    // SAFETY: null or a set, which is at least 8 bytes long and aligned.
    unsafe { mask.cast::<u64>().as_ref() }.copied()
}

unsafe fn wait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: Option<Duration>,
    mask: Option<u64>,
) -> Outcome {
    if count <= 0 {
        return Outcome::Error(libc::EINVAL);
    }
    if count as usize > i32::MAX as usize / size_of::<epoll_event>() {
        return Outcome::Error(libc::EINVAL);
    }
    if is_wild(events) {
        return Outcome::Error(libc::EFAULT);
    }
    // SAFETY: epoll_wait(2) promises room for that many events.
    let events = unsafe { core::slice::from_raw_parts_mut(events, count as usize) };
    inside(|| epoll::wait(set, events, timeout, mask))
}

#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_wait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::epoll_wait()(set, events, count, timeout) };
    if table::is_kernel(set) {
        return kernel();
    }
    // SAFETY: the caller's events.
    let work = || unsafe { wait(set, events, count, of_millis(timeout), None) };
    point(work, || kernel() as isize) as c_int
}

#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_pwait(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: c_int,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::epoll_pwait()(set, events, count, timeout, mask) };
    if table::is_kernel(set) {
        return kernel();
    }
    // SAFETY: the caller's events and mask.
    let work = || unsafe { wait(set, events, count, of_millis(timeout), of_mask(mask)) };
    point(work, || kernel() as isize) as c_int
}

#[no_mangle]
pub unsafe extern "C-unwind" fn epoll_pwait2(
    set: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments.
    let kernel = || unsafe { real::epoll_pwait2()(set, events, count, timeout, mask) };
    if table::is_kernel(set) {
        return kernel();
    }
    // SAFETY: the caller's time.
    let timeout = match unsafe { of_timespec(timeout) } {
        Ok(timeout) => timeout,
        Err(error) => return fail(error),
    };
    // SAFETY: the caller's events and mask.
    let work = || unsafe { wait(set, events, count, timeout, of_mask(mask)) };
    point(work, || kernel() as isize) as c_int
}

/// So many entries are not compared with the limit, for which the kernel has to be asked.
const FEW_ENTRIES: nfds_t = 64;

/// Whether the kernel refuses so many entries, and so does not read them: more than there may be descriptors.
fn are_too_many(count: nfds_t) -> bool {
    if count <= FEW_ENTRIES || is_confined() {
        return false;
    }
    // 0: the limit is not known.
    let limit = descriptor_limit();
    limit > 0 && count as usize > limit
}

/// The entries; none of what the kernel refuses, which is to say why.
unsafe fn slice<'a>(fds: *mut pollfd, count: nfds_t) -> &'a mut [pollfd] {
    if is_wild(fds) || count == 0 || are_too_many(count) {
        return &mut [];
    }
    // SAFETY: poll(2) promises that many entries.
    unsafe { core::slice::from_raw_parts_mut(fds, count as usize) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the caller's entries.
    let entries = unsafe { slice(fds, count) };
    if !stack_poll::is_ours(entries) {
        // SAFETY: the caller's arguments.
        return unsafe { real::poll()(fds, count, timeout) };
    }
    let work = || inside(|| stack_poll::poll(entries, of_millis(timeout), None));
    point(work, || -1) as c_int
}

#[no_mangle]
pub unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the caller's entries.
    let entries = unsafe { slice(fds, count) };
    if !stack_poll::is_ours(entries) {
        // SAFETY: the caller's arguments.
        return unsafe { real::ppoll()(fds, count, timeout, mask) };
    }
    // SAFETY: the caller's time and mask.
    match unsafe { of_timespec(timeout) } {
        // SAFETY: as above.
        Ok(timeout) => {
            // SAFETY: the caller's mask.
            let mask = unsafe { of_mask(mask) };
            let work = || inside(|| stack_poll::poll(entries, timeout, mask));
            point(work, || -1) as c_int
        }
        Err(error) => fail(error),
    }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn __poll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: c_int,
    room: libc::size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        overrun();
    }
    // SAFETY: the caller's entries.
    unsafe { poll(fds, count, timeout) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: libc::size_t,
) -> c_int {
    if room / size_of::<pollfd>() < count as usize {
        overrun();
    }
    // SAFETY: the caller's entries.
    unsafe { ppoll(fds, count, timeout, mask) }
}

unsafe fn words<'a>(set: *mut fd_set, count: usize) -> Option<&'a mut [u64]> {
    if set.is_null() {
        return None;
    }
    // SAFETY: select(2) promises that the set has `count` bits, in words of 64.
    Some(unsafe { core::slice::from_raw_parts_mut(set.cast::<u64>(), count.div_ceil(64)) })
}

/// The bits of a select's sets that are looked at: as by the kernel no more than there are places for open
/// descriptors, however many the program says (getdtablesize), for its sets may be too short for those. Ours,
/// which lie above the program's, do not count.
fn descriptors_within(count: c_int) -> c_int {
    const WORD: c_int = u64::BITS as c_int;
    if count <= libc::FD_SETSIZE as c_int {
        return count;
    }
    // Without /proc, or with no number free to look there, all that the program says.
    let Some(highest) = highest_open() else {
        return count;
    };
    let places = highest / WORD * WORD + WORD;
    count.min(places.max(libc::FD_SETSIZE as c_int))
}

/// The highest number among the program's open descriptors; None when it cannot be known.
fn highest_open() -> Option<c_int> {
    let all = numbers::all().ok()?.into_iter();
    all.filter(|fd| !descriptors::is_hidden(*fd)).max()
}

/// None when no descriptor of ours is in the sets: the real select is to be called.
unsafe fn select_ours(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: Option<Duration>,
    mask: Option<u64>,
) -> Option<c_int> {
    let count = usize::try_from(count).ok()?;
    if sets.iter().any(|set| !set.is_null() && is_wild(*set)) {
        return None;
    }
    // SAFETY: the caller's sets.
    let of = sets.map(|set| unsafe { words(set, count) });
    let mut sets = Sets { of };
    let mut fds = sets.to_poll(count);
    if !stack_poll::is_ours(&fds) {
        return None;
    }
    let work = || inside(|| stack_poll::poll(&mut fds, timeout, mask));
    if point(work, || -1) < 0 {
        return Some(-1);
    }
    Some(match sets.from_poll(&fds) {
        Ok(found) => found as c_int,
        Err(error) => fail(error),
    })
}

/// None: for ever. Err: not a time.
fn of_timeval(time: Option<&timeval>) -> Result<Option<Duration>, c_int> {
    let Some(time) = time else {
        return Ok(None);
    };
    if time.tv_sec < 0 || time.tv_usec < 0 {
        return Err(libc::EINVAL);
    }
    let micros = (time.tv_sec as u64).saturating_mul(1_000_000);
    let micros = micros.saturating_add(time.tv_usec as u64);
    Ok(Some(Duration::from_micros(micros)))
}

#[no_mangle]
pub unsafe extern "C-unwind" fn select(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    let count = descriptors_within(count);
    // SAFETY: null or a time, by select(2).
    let time = unsafe { timeout.as_mut() };
    let Ok(wait) = of_timeval(time.as_deref()) else {
        return fail(libc::EINVAL);
    };
    let start = Instant::now();
    // SAFETY: the caller's sets.
    match unsafe { select_ours(count, [read, write, except], wait, None) } {
        Some(result) => {
            // Linux says how much was left.
            if let (Some(time), Some(wait)) = (time, wait) {
                *time = to_timeval(wait.saturating_sub(start.elapsed()));
            }
            result
        }
        // SAFETY: the caller's arguments.
        None => unsafe { real::select()(count, read, write, except, timeout) },
    }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let count = descriptors_within(count);
    // SAFETY: the caller's time.
    let wait = match unsafe { of_timespec(timeout) } {
        Ok(wait) => wait,
        Err(error) => return fail(error),
    };
    // SAFETY: the caller's sets and mask.
    match unsafe { select_ours(count, [read, write, except], wait, of_mask(mask)) } {
        Some(result) => result,
        // SAFETY: the caller's arguments.
        None => unsafe { real::pselect()(count, read, write, except, timeout, mask) },
    }
}

/// The time and the mask of a call without libc: in the order in which the kernel looks at them.
unsafe fn by_number(
    time: *const timespec,
    (mask, size): (usize, usize),
) -> Result<(Option<Duration>, Option<u64>), c_int> {
    // SAFETY: the caller's time.
    let time = unsafe { of_timespec(time) }?;
    let mask = mask as *const sigset_t;
    if !mask.is_null() && size != size_of::<u64>() {
        return Err(libc::EINVAL);
    }
    if !mask.is_null() && is_wild(mask) {
        return Err(libc::EFAULT);
    }
    // SAFETY: the caller's mask.
    Ok((time, unsafe { of_mask(mask) }))
}

/// Leaves at `place` how much is left of a time, as the kernel does: not of none, and not where the program cannot
/// write.
fn leave_rest<T>(place: *mut T, whole: Option<Duration>, start: Instant, of: fn(Duration) -> T) {
    let Some(whole) = whole.filter(|whole| !whole.is_zero()) else {
        return;
    };
    let left = of(whole.saturating_sub(start.elapsed()));
    // SAFETY: a time was read there; the copy is of this frame.
    unsafe { bypass_sys::memory::store_if_writable(place, left) };
}

/// ppoll(2) without libc.
pub unsafe fn ppoll_by_number(
    fds: *mut pollfd,
    count: nfds_t,
    time: *mut timespec,
    mask: (usize, usize),
) -> c_int {
    // SAFETY: the caller's entries.
    let entries = unsafe { slice(fds, count) };
    if !stack_poll::is_ours(entries) {
        let number = libc::SYS_ppoll;
        let (fds, count, time) = (fds as usize, count as usize, time as usize);
        // SAFETY: the caller's arguments.
        return unsafe { real::syscall()(number, fds, count, time, mask.0, mask.1, 0) } as c_int;
    }
    // SAFETY: the caller's time and mask.
    match unsafe { by_number(time, mask) } {
        Ok((wait, mask)) => {
            let start = Instant::now();
            let work = || inside(|| stack_poll::poll(entries, wait, mask));
            let result = point(work, || -1);
            leave_rest(time, wait, start, to_timespec);
            result as c_int
        }
        Err(error) => fail(error),
    }
}

/// pselect6(2) without libc: the mask and its size lie together at `mask`.
pub unsafe fn pselect_by_number(
    count: c_int,
    sets: [*mut fd_set; 3],
    time: *mut timespec,
    mask: *const [usize; 2],
) -> c_int {
    let count = descriptors_within(count);
    let kernel = || {
        let [read, write, except] = sets.map(|set| set as usize);
        let (number, time, mask) = (libc::SYS_pselect6, time as usize, mask as usize);
        // SAFETY: the caller's arguments.
        unsafe { real::syscall()(number, count as usize, read, write, except, time, mask) as c_int }
    };
    if !mask.is_null() && is_wild(mask) {
        return kernel();
    }
    // SAFETY: null or both, by select(2).
    let [mask, size] = unsafe { mask.as_ref() }.copied().unwrap_or_default();
    // SAFETY: the caller's time and mask.
    let Ok((wait, mask)) = (unsafe { by_number(time, (mask, size)) }) else {
        // It says the same of the time and the mask, before it looks at the descriptors.
        return kernel();
    };
    let start = Instant::now();
    // SAFETY: the caller's sets.
    match unsafe { select_ours(count, sets, wait, mask) } {
        Some(result) => {
            leave_rest(time, wait, start, to_timespec);
            result
        }
        None => kernel(),
    }
}

/// select(2) without libc.
#[cfg(target_arch = "x86_64")]
pub unsafe fn select_by_number(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: *mut timeval,
) -> c_int {
    let count = descriptors_within(count);
    let kernel = || {
        let [read, write, except] = sets.map(|set| set as usize);
        let (number, time) = (libc::SYS_select, timeout as usize);
        // SAFETY: the caller's arguments.
        unsafe { real::syscall()(number, count as usize, read, write, except, time, 0) as c_int }
    };
    if !timeout.is_null() && is_wild(timeout) {
        return kernel();
    }
    // SAFETY: null or a time, by select(2).
    let Ok(wait) = of_timeval(unsafe { timeout.as_ref() }) else {
        return kernel();
    };
    let start = Instant::now();
    // SAFETY: the caller's sets.
    match unsafe { select_ours(count, sets, wait, None) } {
        Some(result) => {
            leave_rest(timeout, wait, start, to_timeval);
            result
        }
        None => kernel(),
    }
}

fn to_timespec(time: Duration) -> timespec {
    timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    }
}

fn to_timeval(time: Duration) -> timeval {
    timeval {
        tv_sec: time.as_secs() as libc::time_t,
        tv_usec: time.subsec_micros().into(),
    }
}
