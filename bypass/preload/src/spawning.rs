//! What a program's file actions do that has to be known when they are used: the descriptors that they give to what is
//! spawned, whatever their close-on-exec says, and the number from which on they close all.
//!
//! Closing all would close what carries the connections that were given. Therefore, where connections are given,
//! the descriptors that are open when the program is spawned are closed one by one, without ours.
//!
//! The descriptors that carry the connections are close-on-exec, and stay so in this process, in which other threads start
//! programs, too: actions of our own, before the program's, give them to the child alone.

use core::ffi::c_void;
use core::{mem, ptr};
use std::sync::{Mutex, RwLock};

use bypass_stack::process::deferral;
use bypass_sys::process::keeping_errno;
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

/// Held for reading while a program is started to which descriptors of ours are given, and for writing by whoever may start
/// another that would have them, too: by fork, or where libc itself starts a shell.
static STARTING: RwLock<()> = RwLock::new(());

/// Handlers wait until a program is started: one that starts another would wait for its own thread.
struct Deferring;

impl Deferring {
    fn begin() -> Self {
        deferral::enter();
        Self
    }
}

impl Drop for Deferring {
    fn drop(&mut self) {
        deferral::leave();
    }
}

/// Until it is dropped no child is made that would have what is prepared for another, except by actions. A thread that
/// forks meanwhile waits.
pub fn beside_others() -> impl Sized {
    let deferring = Deferring::begin();
    (keeping_errno(|| STARTING.read().ok()), deferring)
}

/// Until it is dropped nothing else is started. The caller has libc's list of streams where libc takes that, too.
pub fn alone() -> impl Sized {
    let deferring = Deferring::begin();
    (keeping_errno(|| STARTING.write().ok()), deferring)
}

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
    let add_close = real::posix_spawn_file_actions_addclose();
    let guard = lock(&COMPLETING).ok();
    let Some(kept) = kept else {
        // They do not change again.
        return succeeded(close_now(actions)).map(|()| None);
    };
    for fd in closes_from(actions).map_or_else(Vec::new, inherited_from) {
        if !kept.contains(&fd) {
            // SAFETY: the caller's actions.
            succeeded(unsafe { add_close(actions, fd) })?;
        }
    }
    Ok(guard)
}

/// libc's actions (spawn.h), of which it keeps the entries to itself.
#[repr(C)]
struct Actions {
    allocated: c_int,
    used: c_int,
    entries: *mut Entry,
    padding: [c_int; 16],
}

/// An entry of glibc's: what it does in the first word, then its arguments. [`Giving::of`] sees whether it is so.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    kind: c_int,
    padding: c_int,
    fd: c_int,
    new: c_int,
    rest: [usize; 2],
}

/// Actions that give descriptors to what is spawned, and then do what the program's do.
struct Giving {
    own: Box<Actions>,
    /// The former entries in the places of the program's entries, which libc must not free twice.
    places: Vec<Entry>,
    first: usize,
}

impl Giving {
    /// None where libc has another idea of actions, or no memory.
    fn of(actions: *const Actions, given: &[c_int]) -> Option<Self> {
        // SAFETY: null or the program's actions.
        let wanted = unsafe { actions.as_ref() }.map_or(0, |actions| actions.used as usize);
        // SAFETY: numbers and an address, for all of which libc takes zeroes.
        let mut own: Box<Actions> = Box::new(unsafe { mem::zeroed() });
        let at = (&raw mut *own).cast::<c_void>();
        // SAFETY: actions of our own.
        succeeded(unsafe { real::posix_spawn_file_actions_init()(at) }).ok()?;
        let mut giving = Self {
            own,
            places: Vec::new(),
            first: given.len(),
        };
        let filling = (0..wanted).map(|_| (0, 1));
        let all: Vec<(c_int, c_int)> = given.iter().map(|fd| (*fd, *fd)).chain(filling).collect();
        for (fd, new) in &all {
            // SAFETY: as above.
            let added = unsafe { real::posix_spawn_file_actions_adddup2()(at, *fd, *new) };
            succeeded(added).ok()?;
        }
        if wanted == 0 {
            return Some(giving);
        }
        // SAFETY: libc keeps room for eight entries at least, each of which has three numbers.
        let two = unsafe { giving.own.entries.cast::<[Entry; 2]>().as_ref() }?;
        let is_as = |entry: &Entry, (fd, new)| {
            entry.kind == two[0].kind && (entry.fd, entry.new) == (fd, new)
        };
        let is_known = giving.own.used as usize == all.len()
            && two.iter().zip(&all).all(|(entry, one)| is_as(entry, *one));
        if !is_known {
            return None;
        }
        giving.take_over(actions, wanted);
        Some(giving)
    }

    /// The program's entries come into their places.
    fn take_over(&mut self, actions: *const Actions, count: usize) {
        // SAFETY: so many entries were added to ours for those of the program's.
        unsafe {
            let to = self.own.entries.add(self.first);
            self.places = core::slice::from_raw_parts(to, count).to_vec();
            ptr::copy_nonoverlapping((*actions).entries, to, count);
        }
    }
}

impl Drop for Giving {
    fn drop(&mut self) {
        // SAFETY: the entries of `take_over`; then actions of our own.
        unsafe {
            if !self.places.is_empty() {
                let to = self.own.entries.add(self.first);
                ptr::copy_nonoverlapping(self.places.as_ptr(), to, self.places.len());
            }
            real::posix_spawn_file_actions_destroy()((&raw mut *self.own).cast());
        }
    }
}

/// Spawns by `call`, with actions that give these descriptors first: ours, and `covered` ones of the program's. Where libc
/// refuses such actions, whatever is started meanwhile gets them, too.
pub fn giving(
    actions: *const c_void,
    (ours, covered): (&[c_int], &[c_int]),
    call: impl Fn(*const c_void) -> c_int,
) -> c_int {
    let before = closes_from(actions).unwrap_or(c_int::MAX);
    let flags = |fd: c_int| kernel::fcntl(fd, libc::F_GETFD, 0);
    loop {
        let open = covered
            .iter()
            .filter(|fd| **fd < before && flags(**fd).is_ok());
        let given: Vec<c_int> = ours.iter().chain(open).copied().collect();
        if given.is_empty() {
            return call(actions);
        }
        let Some(giving) = Giving::of(actions.cast(), &given) else {
            for fd in given {
                let _ = kernel::fcntl(fd, libc::F_SETFD, 0);
            }
            return call(actions);
        };
        let error = call((&raw const *giving.own).cast());
        // Another thread has closed one that the program would only not have given then.
        if error != libc::EBADF || given.iter().all(|fd| flags(*fd).is_ok()) {
            return error;
        }
    }
}

/// libc's functions that are called while a lock is held are found before: the loader may have one of its own, and wait for
/// a fork, which waits for ours.
pub fn find() {
    let _ = real::posix_spawn_file_actions_init();
    let _ = real::posix_spawn_file_actions_destroy();
    let _ = real::posix_spawn_file_actions_adddup2();
    let _ = real::posix_spawn_file_actions_addclose();
    let _ = real::posix_spawn_file_actions_addclosefrom_np();
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
