//! exec in all its forms, and posix_spawn: our environment goes along, and the connections that the
//! new image inherits.

use core::ffi::{c_char, c_int, c_void, CStr};
use std::ffi::CString;
use std::sync::OnceLock;

use bypass_stack::lifecycle::exec::{self, Prepared};
use bypass_stack::process;
use bypass_stack::process::deferral::inside;
use libc::FILE;

use super::creating::{or_give_back, Made};
use crate::environment::{self, Lent, List};
use crate::{forking, real, shell, spawning};

extern "C" {
    static mut environ: List;
}

/// The environment's settings of this library at the start: a program may forget them later.
static ENVIRONMENT: OnceLock<Vec<CString>> = OnceLock::new();

/// Keeps LD_PRELOAD and the options for the programs that this one starts.
pub fn remember_environment() {
    let is_ours = |name: &str| {
        let is_option = name.starts_with("EF_") || name.starts_with("WIRESPEED_");
        (name == "LD_PRELOAD" || is_option) && name != exec::VARIABLE
    };
    let kept = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .filter(|(name, _)| is_ours(name))
        .filter_map(|(name, value)| CString::new(format!("{name}={value}")).ok())
        .collect();
    let _ = ENVIRONMENT.set(kept);
}

/// The entries of a list that ends with null.
unsafe fn entries(list: List) -> Vec<*const c_char> {
    let mut all = Vec::new();
    let mut at = list;
    // SAFETY: the man pages promise a list that ends with null.
    while !at.is_null() && !unsafe { *at }.is_null() {
        // SAFETY: not yet the end.
        all.push(unsafe { *at });
        // SAFETY: the end was not reached.
        at = unsafe { at.add(1) };
    }
    all
}

fn name_of(entry: &CStr) -> &[u8] {
    let bytes = entry.to_bytes();
    let end = bytes.iter().position(|byte| *byte == b'=');
    &bytes[..end.map_or(bytes.len(), |end| end + 1)]
}

/// The environment for a new image: nginx builds its own for its next binary, ours has to be in it.
unsafe fn extended(environment: List, passed: Option<&CStr>) -> Vec<*const c_char> {
    // SAFETY: the caller's list.
    let mut all = unsafe { entries(environment) };
    // SAFETY: each entry is a C string.
    let text = |entry: &*const c_char| unsafe { CStr::from_ptr(*entry) };
    let stale = format!("{}=", exec::VARIABLE);
    all.retain(|entry| !text(entry).to_bytes().starts_with(stale.as_bytes()));
    for kept in ENVIRONMENT.get().into_iter().flatten() {
        let has = all
            .iter()
            .any(|one| text(one).to_bytes().starts_with(name_of(kept)));
        if !has {
            all.push(kept.as_ptr());
        }
    }
    all.extend(passed.map(CStr::as_ptr));
    all.push(core::ptr::null());
    all
}

/// The variable that shows the new image where its record is.
fn name_of_record(prepared: &Prepared) -> Option<CString> {
    let record = prepared.record()?;
    CString::new(format!("{}={record}", exec::VARIABLE)).ok()
}

/// Runs `call` with the environment of the new image, for which was `prepared`; `has_left` says by its result whether
/// that runs.
unsafe fn with_record(
    environment: List,
    prepared: Option<Prepared>,
    call: impl FnOnce(List) -> c_int,
    has_left: impl FnOnce(c_int) -> bool,
) -> c_int {
    let passed = prepared.as_ref().and_then(name_of_record);
    // SAFETY: the caller's list.
    let all = unsafe { extended(environment, passed.as_deref()) };
    let result = call(all.as_ptr());
    if let Some(prepared) = prepared {
        if has_left(result) {
            inside(|| exec::left(prepared));
        } else {
            inside(|| exec::undo(prepared));
        }
    }
    result
}

unsafe fn replace(environment: List, call: impl FnOnce(List) -> c_int) -> c_int {
    let prepared = inside(|| exec::prepare(&[], true));
    if let Some(prepared) = &prepared {
        prepared.uncover();
    }
    // SAFETY: the caller's list; exec that returns has failed.
    let result = unsafe { with_record(environment, prepared, call, |_| false) };
    // errno was set by the call; undoing uses raw system calls, which leave it alone.
    result
}

#[no_mangle]
pub unsafe extern "C-unwind" fn execve(
    path: *const c_char,
    arguments: List,
    environment: List,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { replace(environment, |all| real::execve()(path, arguments, all)) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn execv(path: *const c_char, arguments: List) -> c_int {
    // SAFETY: the caller's arguments, and libc's environment.
    unsafe { execve(path, arguments, environ) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn execvpe(
    file: *const c_char,
    arguments: List,
    environment: List,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { replace(environment, |all| real::execvpe()(file, arguments, all)) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn execvp(file: *const c_char, arguments: List) -> c_int {
    // SAFETY: the caller's arguments, and libc's environment.
    unsafe { execvpe(file, arguments, environ) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn fexecve(fd: c_int, arguments: List, environment: List) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { replace(environment, |all| real::fexecve()(fd, arguments, all)) }
}

#[no_mangle]
pub unsafe extern "C-unwind" fn execveat(
    folder: c_int,
    path: *const c_char,
    arguments: List,
    environment: List,
    flags: c_int,
) -> c_int {
    let call = |all: List| {
        let [folder, flags] = [folder as usize, flags as usize];
        let [path, arguments, all] = [path as usize, arguments as usize, all as usize];
        // By its number, because older versions of libc do not have it.
        // SAFETY: the caller's arguments.
        unsafe {
            real::syscall()(libc::SYS_execveat, folder, path, arguments, all, flags, 0) as c_int
        }
    };
    // SAFETY: the caller's list.
    unsafe { replace(environment, call) }
}

/// Starts a program by `call`, with actions and an environment in which it finds the connections that it inherits.
unsafe fn start(
    actions: *const c_void,
    environment: List,
    call: impl Fn(*const c_void, List) -> c_int,
) -> c_int {
    spawning::find();
    let beside_others = spawning::beside_others();
    let given = spawning::given_by(actions);
    let prepared = inside(|| exec::prepare(&given, false));
    let kept = prepared.as_ref().map(Prepared::inherited);
    let covered = prepared
        .as_ref()
        .map(|prepared| prepared.covered().to_vec());
    // The call lasts until the program's file has come and its actions are done, of which one may open a FIFO: where nothing
    // is given, forks do not wait for it.
    let gives = kept.iter().chain(&covered).any(|fds| !fds.is_empty());
    let _beside_others = gives.then_some(beside_others);
    let call = |all| {
        let completed = spawning::complete(actions.cast_mut(), kept.as_deref());
        if let Err(error) = completed {
            return error;
        }
        let given = (kept.as_deref(), covered.as_deref());
        let given = (given.0.unwrap_or_default(), given.1.unwrap_or_default());
        spawning::giving(actions, given, |actions| call(actions, all))
    };
    // SAFETY: the caller's list.
    unsafe { with_record(environment, prepared, call, |error| error == 0) }
}

macro_rules! spawn {
    ($name:ident) => {
        #[no_mangle]
        pub unsafe extern "C" fn $name(
            child: *mut c_int,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            arguments: List,
            environment: List,
        ) -> c_int {
            // Found before a lock is held, see `spawning::find`.
            let real = real::$name();
            let call = |actions, all| {
                // SAFETY: the caller's arguments.
                unsafe { real(child, path, actions, attributes, arguments, all) }
            };
            // SAFETY: as above.
            unsafe { start(actions, environment, call) }
        }
    };
}

spawn!(posix_spawn);
spawn!(posix_spawnp);
// These give a descriptor of the process (pidfd) for its number.
spawn!(pidfd_spawn);
spawn!(pidfd_spawnp);

#[no_mangle]
pub unsafe extern "C" fn posix_spawn_file_actions_init(actions: *mut c_void) -> c_int {
    spawning::forget(actions);
    // SAFETY: the caller's arguments.
    unsafe { real::posix_spawn_file_actions_init()(actions) }
}

#[no_mangle]
pub unsafe extern "C" fn posix_spawn_file_actions_destroy(actions: *mut c_void) -> c_int {
    spawning::forget(actions);
    // SAFETY: the caller's arguments.
    unsafe { real::posix_spawn_file_actions_destroy()(actions) }
}

#[no_mangle]
pub unsafe extern "C" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    fd: c_int,
    new: c_int,
) -> c_int {
    let error = spawning::close_now(actions);
    if error != 0 {
        return error;
    }
    // SAFETY: the caller's arguments.
    let result = unsafe { real::posix_spawn_file_actions_adddup2()(actions, fd, new) };
    if result == 0 {
        spawning::note_duplicate(actions, fd);
    }
    result
}

#[no_mangle]
pub unsafe extern "C" fn posix_spawn_file_actions_addclose(
    actions: *mut c_void,
    fd: c_int,
) -> c_int {
    match spawning::close_now(actions) {
        // SAFETY: the caller's arguments.
        0 => unsafe { real::posix_spawn_file_actions_addclose()(actions, fd) },
        error => error,
    }
}

#[no_mangle]
pub unsafe extern "C" fn posix_spawn_file_actions_addopen(
    actions: *mut c_void,
    fd: c_int,
    path: *const c_char,
    flags: c_int,
    mode: libc::mode_t,
) -> c_int {
    match spawning::close_now(actions) {
        // SAFETY: the caller's arguments.
        0 => unsafe { real::posix_spawn_file_actions_addopen()(actions, fd, path, flags, mode) },
        error => error,
    }
}

#[no_mangle]
pub unsafe extern "C" fn posix_spawn_file_actions_addclosefrom_np(
    actions: *mut c_void,
    first: c_int,
) -> c_int {
    if first < 0 {
        return libc::EBADF;
    }
    spawning::note_closing(actions, first);
    0
}

/// What libc's shell finds, until the call that starts it has ended.
struct Shells {
    prepared: Option<Prepared>,
    _environment: Lent,
}

impl Drop for Shells {
    fn drop(&mut self) {
        if let Some(prepared) = self.prepared.take() {
            inside(|| exec::left(prepared));
        }
    }
}

/// Runs `call`, by which libc itself starts a shell with the environment and the descriptors that it finds.
unsafe fn in_environment<T: Made>(call: impl Fn() -> T) -> T {
    let Some(prepared) = inside(|| exec::prepare(&[], false)) else {
        return call();
    };
    prepared.uncover();
    // SAFETY: libc's list. Another thread that sets a variable meanwhile has libc copy it, and keep the copy.
    let extended = |own, record: Option<&CStr>| unsafe { extended(own, record) };
    let mut shells = Shells {
        _environment: environment::lend(name_of_record(&prepared), extended),
        prepared: Some(prepared),
    };
    let result = call();
    if let Some(prepared) = shells.prepared.take_if(|_| result.has_failed()) {
        inside(|| exec::undo(prepared));
    }
    result
}

#[no_mangle]
pub unsafe extern "C-unwind" fn system(command: *const c_char) -> c_int {
    let real = real::system();
    if command.is_null() || !process::is_started() {
        // SAFETY: the caller's command.
        return unsafe { real(command) };
    }
    let words = [c"sh", c"-c", c"--"].map(CStr::as_ptr);
    let words = [words[0], words[1], words[2], command, core::ptr::null()];
    let spawn = real::posix_spawn();
    shell::run(|child, attributes| {
        let (path, attributes) = (c"/bin/sh".as_ptr(), attributes.cast());
        // SAFETY: places and lists of this frame, and the caller's command.
        let call =
            |actions, all| unsafe { spawn(child, path, actions, attributes, words.as_ptr(), all) };
        // SAFETY: no actions, and libc's environment.
        unsafe { start(core::ptr::null(), environ, call) }
    })
}

#[no_mangle]
pub unsafe extern "C-unwind" fn popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
    let real = real::popen();
    // SAFETY: the caller's arguments.
    let call = || or_give_back(|| unsafe { real(command, mode) });
    if !process::is_started() {
        return call();
    }
    // SAFETY: as above.
    forking::starting_alone(|| unsafe { in_environment(call) })
}
