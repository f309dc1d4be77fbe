//! system(3), as libc does it. libc's own is one call from before its shell is started to after that has ended: what the
//! shell is to have would be there all the time for whatever else is started.

use core::ffi::c_int;
use core::{mem, ptr};
use std::sync::Mutex;

use libc::{pid_t, posix_spawnattr_t, sigaction, sigset_t};

use crate::locking::lock;
use crate::outcome::set_errno;
use crate::real;

extern "C-unwind" {
    /// A thread may be cancelled in it.
    fn waitpid(process: pid_t, status: *mut c_int, options: c_int) -> pid_t;
}

/// Ignored while a shell runs.
const IGNORED: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
/// The status of a shell that could not be started.
const NO_SHELL: c_int = 127 << 8;

/// Threads that wait for a shell, and what the program does at these signals.
static WAITING: Mutex<(usize, Option<[sigaction; 2]>)> = Mutex::new((0, None));

/// Holds the count across a fork, so that the child finds it whole and free.
pub fn hold() -> impl Sized {
    lock(&WAITING).ok()
}

/// In a forked child: no thread of it waits.
pub fn forget() {
    if let Ok(mut waiting) = lock(&WAITING) {
        waiting.0 = 0;
    }
}

fn empty_set() -> sigset_t {
    // SAFETY: a set is numbers only.
    let mut set: sigset_t = unsafe { mem::zeroed() };
    // SAFETY: a place of this frame.
    unsafe { libc::sigemptyset(&mut set) };
    set
}

/// Signals are as they were when this is dropped, also by a thread that is cancelled.
struct Quiet {
    /// Signals with their default action in the shell.
    default: sigset_t,
    mask: sigset_t,
}

impl Quiet {
    fn begin() -> Self {
        let mut quiet = Self {
            default: empty_set(),
            mask: empty_set(),
        };
        let Ok(mut waiting) = lock(&WAITING) else {
            return quiet;
        };
        waiting.0 += 1;
        if waiting.0 == 1 {
            waiting.1 = Some(IGNORED.map(ignore));
        }
        for (signal, former) in IGNORED.iter().zip(waiting.1.iter().flatten()) {
            if former.sa_sigaction != libc::SIG_IGN {
                // SAFETY: a place of this frame.
                unsafe { libc::sigaddset(&mut quiet.default, *signal) };
            }
        }
        drop(waiting);
        let mut children = empty_set();
        // SAFETY: places of this frame.
        unsafe {
            libc::sigaddset(&mut children, libc::SIGCHLD);
            libc::pthread_sigmask(libc::SIG_BLOCK, &children, &mut quiet.mask);
        }
        quiet
    }
}

/// The action before.
fn ignore(signal: c_int) -> sigaction {
    // SAFETY: numbers and an address that libc does not use; places of this frame.
    unsafe {
        let (mut ignored, mut former): (sigaction, sigaction) = mem::zeroed();
        ignored.sa_sigaction = libc::SIG_IGN;
        real::sigaction_real()(signal, &ignored, &mut former);
        former
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Ok(mut waiting) = lock(&WAITING) {
            waiting.0 = waiting.0.saturating_sub(1);
            let last = (waiting.0 == 0).then(|| waiting.1.take()).flatten();
            for (signal, former) in IGNORED.iter().zip(last.iter().flatten()) {
                // SAFETY: what libc has said.
                unsafe { real::sigaction_real()(*signal, former, ptr::null_mut()) };
            }
        }
        // SAFETY: a set of this frame.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.mask, ptr::null_mut()) };
    }
}

/// A shell that runs; one whose thread is cancelled does not outlive it.
struct Running(pid_t);

impl Drop for Running {
    fn drop(&mut self) {
        // SAFETY: a child of ours that was not waited for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            while libc::waitpid(self.0, ptr::null_mut(), 0) == -1
                && crate::outcome::errno() == libc::EINTR
            {}
        }
    }
}

/// Runs what `start` spawns with these attributes, and waits for its end; its status.
pub fn run(start: impl FnOnce(*mut pid_t, *const posix_spawnattr_t) -> c_int) -> c_int {
    let quiet = Quiet::begin();
    let mut child = 0;
    // SAFETY: attributes of this frame, and sets that were filled.
    let error = unsafe {
        let mut attributes: posix_spawnattr_t = mem::zeroed();
        libc::posix_spawnattr_init(&mut attributes);
        libc::posix_spawnattr_setsigmask(&mut attributes, &quiet.mask);
        libc::posix_spawnattr_setsigdefault(&mut attributes, &quiet.default);
        let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        libc::posix_spawnattr_setflags(&mut attributes, flags as _);
        let error = start(&mut child, &attributes);
        libc::posix_spawnattr_destroy(&mut attributes);
        error
    };
    if error != 0 {
        drop(quiet);
        set_errno(error);
        return NO_SHELL;
    }
    let running = Running(child);
    let mut status = 0;
    // SAFETY: a place of this frame.
    while unsafe { waitpid(child, &mut status, 0) } == -1 {
        if crate::outcome::errno() != libc::EINTR {
            status = -1;
            break;
        }
    }
    mem::forget(running);
    status
}
