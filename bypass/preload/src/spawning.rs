//! The descriptors that a program's file actions give to what it spawns, whatever their close-on-exec says.

use core::ffi::c_void;
use std::sync::Mutex;

use libc::c_int;

use crate::locking::lock;

/// File actions, by their address, and a number that they duplicate.
static GIVEN: Mutex<Vec<(usize, c_int)>> = Mutex::new(Vec::new());

/// Holds the list across a fork, so that the child finds it whole and free.
pub fn hold() -> impl Sized {
    lock(&GIVEN).ok()
}

/// These actions duplicate `fd`.
pub fn note(actions: *const c_void, fd: c_int) {
    if let Ok(mut given) = lock(&GIVEN) {
        given.push((actions as usize, fd));
    }
}

/// These actions are new, or no more.
pub fn forget(actions: *const c_void) {
    if let Ok(mut given) = lock(&GIVEN) {
        given.retain(|(of, _)| *of != actions as usize);
    }
}

/// What these actions duplicate.
pub fn given_by(actions: *const c_void) -> Vec<c_int> {
    let given = lock(&GIVEN);
    let all = given.iter().flat_map(|given| given.iter());
    all.filter(|(of, _)| *of == actions as usize)
        .map(|(_, fd)| *fd)
        .collect()
}
