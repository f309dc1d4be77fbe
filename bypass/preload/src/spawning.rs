//! The descriptors that a program's file actions give to what it spawns, whatever their close-on-exec says.

use core::ffi::c_void;
use std::sync::Mutex;

use libc::c_int;

/// File actions, by their address, and a number that they duplicate.
static GIVEN: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

/// Holds the list across a fork, so that the child finds it whole and free.
pub fn hold() -> impl Sized {
    GIVEN.lock().ok()
}

/// These actions duplicate `fd`.
pub fn note(actions: *const c_void, fd: c_int) {
    if let Ok(mut given) = GIVEN.lock() {
        given.push((actions as usize, fd));
    }
}

/// These actions are new, or no more.
pub fn forget(actions: *const c_void) {
    if let Ok(mut given) = GIVEN.lock() {
        given.retain(|(of, _)| *of != actions as usize);
    }
}

/// What these actions duplicate.
pub fn given_by(actions: *const c_void) -> Vec<c_int> {
    let given = GIVEN.lock();
    let all = given.iter().flat_map(|given| given.iter());
    all.filter(|(of, _)| *of == actions as usize)
        .map(|(_, fd)| *fd)
        .collect()
}
