//! Calls with which a process gives up root: an interface that it is to use is opened before, while it may.

use core::ffi::c_int;

use bypass_stack::packets;
use bypass_stack::process::deferral::inside;
use bypass_sys::kernel;
use libc::uid_t;

use crate::real;

/// The call's word for "as it is".
const SAME: uid_t = uid_t::MAX;

/// Before the effective user becomes `user`. Many servers do so before they listen (memcached, mariadbd).
fn becoming(user: uid_t) {
    if packets::is_wanted() && user != 0 && user != SAME && kernel::geteuid() == Ok(0) {
        inside(packets::open_interfaces);
    }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn setuid(user: uid_t) -> c_int {
    becoming(user);
    // SAFETY: numbers only.
    unsafe { real::setuid()(user) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn seteuid(user: uid_t) -> c_int {
    becoming(user);
    // SAFETY: numbers only.
    unsafe { real::seteuid()(user) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn setreuid(user: uid_t, effective: uid_t) -> c_int {
    becoming(effective);
    // SAFETY: numbers only.
    unsafe { real::setreuid()(user, effective) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn setresuid(user: uid_t, effective: uid_t, saved: uid_t) -> c_int {
    becoming(effective);
    // SAFETY: numbers only.
    unsafe { real::setresuid()(user, effective, saved) }
}
