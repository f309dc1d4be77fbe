//! Onload's extensions for programs (onload/extensions.h): what a program learns of its sockets, and chooses.
//!
//! A program that is linked with Onload's library of stubs, or with ours (`bypass/onload`), finds these in its place.

use core::ffi::{c_char, c_int, c_uint};

use bypass_stack::operations::extensions;
use bypass_stack::process::choices;
use bypass_stack::process::deferral::inside;

use crate::outcome::fail;

/// `struct onload_stat`.
#[repr(C)]
pub struct Stat {
    stack_id: i32,
    stack_name: *mut c_char,
    endpoint_id: i32,
    endpoint_state: i32,
}

/// `enum onload_stackname_who`.
const THIS_THREAD: c_int = 0;
const ALL_THREADS: c_int = 1;
/// `enum onload_stackname_scope`: the first, with which a thread follows the process again, and the last.
const SCOPE_NOCHANGE: c_int = 0;
const SCOPE_GLOBAL: c_int = 4;
/// Features that a program may ask for: ONLOAD_MSG_WARM, and headers with the time stamps of sent datagrams.
const FEATURES: c_int = 2;

/// 0, or the negative error, as these calls report it.
fn negative(result: Result<(), i32>) -> c_int {
    result.map_or_else(|error| -error, |()| 0)
}

extern "C-unwind" fn is_present() -> c_int {
    1
}

/// A stack is a process here, so its number is the process's, and a socket's number in it the descriptor.
unsafe extern "C-unwind" fn fd_stat(fd: c_int, stat: *mut Stat) -> c_int {
    let Some(state) = inside(|| extensions::state(fd)) else {
        return 0;
    };
    let found = Stat {
        stack_id: std::process::id() as i32,
        stack_name: core::ptr::null_mut(),
        endpoint_id: fd,
        endpoint_state: state,
    };
    if !stat.is_null() {
        // SAFETY: null or the caller's structure.
        unsafe { stat.write(found) };
    }
    1
}

extern "C-unwind" fn fd_check_feature(_fd: c_int, feature: c_int) -> c_int {
    match feature {
        0..FEATURES => 0,
        _ => -libc::EOPNOTSUPP,
    }
}

extern "C-unwind" fn move_fd(fd: c_int) -> c_int {
    match inside(|| extensions::is_movable(fd)) {
        true => 0,
        false => fail(libc::EINVAL),
    }
}

extern "C-unwind" fn thread_set_spin(call: c_uint, spin: c_int) -> c_int {
    negative(inside(|| choices::choose_spin(call, spin != 0)))
}

unsafe extern "C-unwind" fn thread_get_spin(state: *mut c_uint) -> c_int {
    // SAFETY: null or the caller's word.
    let Some(state) = (unsafe { state.as_mut() }) else {
        return -libc::EINVAL;
    };
    *state = inside(choices::spins);
    0
}

/// Names do not divide the sockets of a process; that there is none leaves new ones to the kernel.
extern "C-unwind" fn set_stackname(who: c_int, scope: c_int, name: *const c_char) -> c_int {
    let is_known = matches!(who, THIS_THREAD | ALL_THREADS);
    if !is_known || !(SCOPE_NOCHANGE..=SCOPE_GLOBAL).contains(&scope) {
        return fail(libc::EINVAL);
    }
    match (who, scope) {
        (THIS_THREAD, SCOPE_NOCHANGE) => return fail(libc::EINVAL),
        (_, SCOPE_NOCHANGE) => inside(choices::follow_process),
        _ => inside(|| choices::choose_acceleration(who == ALL_THREADS, !name.is_null())),
    }
    0
}

extern "C-unwind" fn stackname_save() -> c_int {
    negative(inside(choices::keep_acceleration))
}

extern "C-unwind" fn stackname_restore() -> c_int {
    negative(inside(choices::restore_acceleration))
}

/// The names for programs. The functions have others besides, because a program may define these itself, and the linker
/// would then take its definitions for ours.
macro_rules! exported {
    ($($name:ident = $own:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[no_mangle]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
            #[allow(unused_unsafe, reason = "some are safe")]
            // SAFETY: the caller's arguments.
            unsafe { $own($($argument),*) }
        }
    )*};
}

exported! {
    onload_is_present = is_present();
    onload_fd_stat = fd_stat(fd: c_int, stat: *mut Stat);
    onload_fd_check_feature = fd_check_feature(fd: c_int, feature: c_int);
    onload_move_fd = move_fd(fd: c_int);
    onload_thread_set_spin = thread_set_spin(call: c_uint, spin: c_int);
    onload_thread_get_spin = thread_get_spin(state: *mut c_uint);
    onload_set_stackname = set_stackname(who: c_int, scope: c_int, name: *const c_char);
    onload_stackname_save = stackname_save();
    onload_stackname_restore = stackname_restore();
}

/// Where the library of stubs finds all of these: the names for programs are its own there.
#[repr(C)]
pub struct Extensions {
    bytes: usize,
    is_present: extern "C-unwind" fn() -> c_int,
    fd_stat: unsafe extern "C-unwind" fn(c_int, *mut Stat) -> c_int,
    fd_check_feature: extern "C-unwind" fn(c_int, c_int) -> c_int,
    move_fd: extern "C-unwind" fn(c_int) -> c_int,
    thread_set_spin: extern "C-unwind" fn(c_uint, c_int) -> c_int,
    thread_get_spin: unsafe extern "C-unwind" fn(*mut c_uint) -> c_int,
    set_stackname: extern "C-unwind" fn(c_int, c_int, *const c_char) -> c_int,
    stackname_save: extern "C-unwind" fn() -> c_int,
    stackname_restore: extern "C-unwind" fn() -> c_int,
}

/// See [`Extensions`], and `bypass/onload/onload_ext.c`, which declares the same.
#[no_mangle]
#[allow(non_upper_case_globals, reason = "a name of C")]
pub static wirespeed_onload_extensions: Extensions = Extensions {
    bytes: size_of::<Extensions>(),
    is_present,
    fd_stat,
    fd_check_feature,
    move_fd,
    thread_set_spin,
    thread_get_spin,
    set_stackname,
    stackname_save,
    stackname_restore,
};
