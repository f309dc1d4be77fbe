//! What a program's file actions do that has to be known when they are used: the descriptors that they give to what is
//! spawned, whatever their close-on-exec says, and the number from which on they close all.
//!
//! Closing all would close what carries the connections that were given. Therefore, where connections are given,
//! the descriptors that are open when the program is spawned are closed one by one, without ours.

use core::ffi::c_void;
use std::sync::Mutex;

use bypass_sys::{kernel, numbers};
use libc::c_int;

use crate::locking::lock;
use crate::real;

#[derive(Clone, Copy, PartialEq)]
enum Note {
    Duplicates(c_int),
    ClosesFrom(c_int),
}

/// File actions, by their address.
static NOTES: Mutex<Vec<(usize, Note)>> = Mutex::new(Vec::new());

/// Held from the change of actions that close all until they have been used: several threads may use the same ones.
static COMPLETING: Mutex<()> = Mutex::new(());

/// Holds the lists across a fork, so that the child finds them whole and free.
pub fn hold() -> impl Sized {
    (lock(&COMPLETING).ok(), lock(&NOTES).ok())
}

fn note(actions: *const c_void, note: Note) {
    if let Ok(mut notes) = lock(&NOTES) {
        notes.push((actions as usize, note));
    }
}

fn notes_of(actions: *const c_void) -> Vec<Note> {
    let notes = lock(&NOTES);
    let all = notes.iter().flat_map(|notes| notes.iter());
    all.filter(|(of, _)| *of == actions as usize)
        .map(|(_, note)| *note)
        .collect()
}

/// These actions duplicate `fd`.
pub fn note_duplicate(actions: *const c_void, fd: c_int) {
    note(actions, Note::Duplicates(fd));
}

/// These actions close all from `first` on.
pub fn note_closing(actions: *const c_void, first: c_int) {
    note(actions, Note::ClosesFrom(first));
}

/// These actions are new, or no more.
pub fn forget(actions: *const c_void) {
    if let Ok(mut notes) = lock(&NOTES) {
        notes.retain(|(of, _)| *of != actions as usize);
    }
}

/// The descriptors that these actions duplicate.
pub fn given_by(actions: *const c_void) -> Vec<c_int> {
    let duplicated = |note| match note {
        Note::Duplicates(fd) => Some(fd),
        Note::ClosesFrom(_) => None,
    };
    let notes = notes_of(actions);
    notes.into_iter().filter_map(duplicated).collect()
}

fn closes_from(actions: *const c_void) -> Option<c_int> {
    let first = |note| match note {
        Note::Duplicates(_) => None,
        Note::ClosesFrom(first) => Some(first),
    };
    let notes = notes_of(actions);
    notes.into_iter().filter_map(first).min()
}

/// Another action follows: what was put off comes before it. An error number where it cannot.
pub fn close_now(actions: *mut c_void) -> c_int {
    let Some(first) = closes_from(actions) else {
        return 0;
    };
    if let Ok(mut notes) = lock(&NOTES) {
        notes.retain(|note| *note != (actions as usize, Note::ClosesFrom(first)));
    }
    // SAFETY: the caller's actions.
    unsafe { real::posix_spawn_file_actions_addclosefrom_np()(actions, first) }
}

/// Before these actions are used, and until what is returned is dropped, they close what they are to close but not
/// what is `kept` for the new image. Fails with the error number of a resource that is not available.
pub fn complete(actions: *mut c_void, kept: Option<&[c_int]>) -> Result<impl Sized, c_int> {
    if closes_from(actions).is_none() {
        return Ok(None);
    }
    // Found before the lock: the loader may have one of its own, and wait for a fork, which waits for this one.
    let add_close = real::posix_spawn_file_actions_addclose();
    let _ = real::posix_spawn_file_actions_addclosefrom_np();
    let guard = lock(&COMPLETING).ok();
    let Some(kept) = kept else {
        return succeeded(close_now(actions)).map(|()| guard);
    };
    for fd in closes_from(actions).map_or_else(Vec::new, inherited_from) {
        if !kept.contains(&fd) {
            // SAFETY: the caller's actions.
            succeeded(unsafe { add_close(actions, fd) })?;
        }
    }
    Ok(guard)
}

fn succeeded(error: c_int) -> Result<(), c_int> {
    if error == 0 {
        Ok(())
    } else {
        Err(error)
    }
}

/// Open descriptors from `first` on that a new image would have.
fn inherited_from(first: c_int) -> Vec<c_int> {
    let is_inherited = |fd: &c_int| {
        let flags = kernel::fcntl(*fd, libc::F_GETFD, 0);
        flags.is_ok_and(|flags| flags as c_int & libc::FD_CLOEXEC == 0)
    };
    let possible = |_| (0..kernel::descriptor_limit() as c_int).collect();
    let open: Vec<c_int> = numbers::all().unwrap_or_else(possible);
    open.into_iter()
        .filter(|fd| *fd >= first)
        .filter(is_inherited)
        .collect()
}
