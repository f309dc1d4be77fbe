//! Calls with which a process gives up root: an interface that it is to use is opened before, while it may, and what it
//! must not have afterwards is closed.

use core::ffi::c_int;

use bypass_stack::packets;
use bypass_stack::process::deferral::inside;
use bypass_sys::kernel;
use bypass_sys::process::has_capabilities;
use libc::uid_t;

use crate::real;

/// The call's word for "as it is".
const SAME: uid_t = uid_t::MAX;

/// Around a call that makes `user` the effective one. Many servers do so before they listen (memcached, mariadbd).
fn becoming(user: uid_t, call: impl FnOnce() -> c_int) -> c_int {
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
