//! Calls with which a process gives up root, or what it can reach: an interface that it is to use is opened before, while it
//! may, and what it must not have afterwards is closed. Where it loses the shared directory, other processes learn
//! before that it cannot wake them.

use core::ffi::{c_char, c_int, CStr};

use bypass_stack::packets;
use bypass_stack::process::deferral::inside;
use bypass_sys::process::has_capabilities;
use bypass_sys::sandbox::is_confined;
use bypass_sys::{directory, kernel};
use libc::uid_t;

use super::process::confining;
use crate::real;

/// The call's word for "as it is".
const SAME: uid_t = uid_t::MAX;

/// Whether a call takes the shared directory away, which is reached after it or not. A filter may not allow to ask.
fn loses_directory(is_reached: impl FnOnce() -> bool) -> bool {
    directory::is_set() && !is_confined() && !inside(is_reached)
}

/// Around a call that makes `user` the effective one.
fn becoming(user: uid_t, call: impl FnOnce() -> c_int) -> c_int {
    let loses = user != SAME && loses_directory(|| directory::is_reachable_by(user));
    confining(loses, false, || with_interfaces(user, call).into()) as c_int
}

/// Many servers do so before they listen (memcached, mariadbd).
fn with_interfaces(user: uid_t, call: impl FnOnce() -> c_int) -> c_int {
    if !packets::is_wanted() || user == 0 || user == SAME || kernel::geteuid() != Ok(0) {
        return call();
    }
    inside(packets::open_interfaces);
    let result = call();
    // A process that can become root again keeps its descriptors.
    if result == 0 && !has_capabilities() {
        inside(packets::give_up_privileges);
    }
    result
}

#[no_mangle]
pub unsafe extern "C-unwind" fn setuid(user: uid_t) -> c_int {
    // SAFETY: numbers only.
    becoming(user, || unsafe { real::setuid()(user) })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn seteuid(user: uid_t) -> c_int {
    // SAFETY: numbers only.
    becoming(user, || unsafe { real::seteuid()(user) })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn setreuid(user: uid_t, effective: uid_t) -> c_int {
    // SAFETY: numbers only.
    becoming(effective, || unsafe { real::setreuid()(user, effective) })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn setresuid(user: uid_t, effective: uid_t, saved: uid_t) -> c_int {
    // SAFETY: numbers only.
    let call = || unsafe { real::setresuid()(user, effective, saved) };
    becoming(effective, call)
}

#[no_mangle]
pub unsafe extern "C-unwind" fn chroot(path: *const c_char) -> c_int {
    // SAFETY: the caller's C string, if it is one.
    let root = (directory::is_set() && !path.is_null()).then(|| unsafe { CStr::from_ptr(path) });
    let is_below = |root| loses_directory(|| directory::is_reachable_below(root));
    let loses = root.is_some_and(is_below);
    // SAFETY: the caller's argument.
    confining(loses, false, || unsafe { real::chroot()(path) }.into()) as c_int
}
