//! Children that are made by number, as vsftpd makes them: a fork, with namespaces of its own.

use core::ffi::{c_int, c_long};

use bypass_stack::process;
use bypass_stats::Reason;
use bypass_sys::descriptor::Owned;
use bypass_sys::{kernel, lock, numbers};

use crate::outcome::{errno, fail};

/// Flags that distinguish a thread from a fork.
const SHARING: usize = (libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_THREAD) as usize;
/// Namespaces that a child may move into on its own.
const MOVABLE: usize =
    (libc::CLONE_NEWIPC | libc::CLONE_NEWUTS | libc::CLONE_NEWNS | libc::CLONE_NEWCGROUP) as usize;
const PROCESSES: usize = libc::CLONE_NEWPID as usize;
const NETWORK: usize = libc::CLONE_NEWNET as usize;

/// Whether clone(2) with these arguments is a fork that can be made as one.
pub fn is_fork(flags: usize, stack: usize) -> bool {
    let known = MOVABLE | PROCESSES | NETWORK | libc::SIGCHLD as usize;
    stack == 0
        && flags & SHARING == 0
        && flags & !known == 0
        && flags & 0xff == libc::SIGCHLD as usize
}

/// The fork, with the handlers that keep connections true in the child.
pub fn fork(flags: usize) -> c_long {
    if flags & NETWORK != 0 && process::is_started() {
        // Wake-ups reach a process by a name in its network namespace. Programs that isolate themselves
        // so can do without, as the kernel may lack it. Nothing is printed: descriptor 2 may be a file of the program's.
        process::fall_back(Reason::Namespace);
        return fail(libc::EINVAL).into();
    }
    let Ok(former) = Children::enter(flags & PROCESSES) else {
        return -1;
    };
    if flags & PROCESSES != 0 {
        lock::never_ask();
    }
    let child = crate::forking::fork();
    let error = errno();
    drop(former);
    if child == 0 {
        move_into(flags & (MOVABLE | NETWORK));
    }
    crate::outcome::set_errno(error);
    child.into()
}

/// In the child; the parent had the right to make namespaces, so it does.
fn move_into(namespaces: usize) {
    // SAFETY: a number only.
    if namespaces != 0 && unsafe { libc::unshare(namespaces as c_int) } != 0 {
        std::process::abort();
    }
}

/// The namespace that children of this process come into, while it is another.
struct Children(Owned);

impl Children {
    /// Err: errno is set.
    fn enter(namespace: usize) -> Result<Option<Self>, ()> {
        if namespace == 0 {
            return Ok(None);
        }
        let name = c"/proc/self/ns/pid_for_children";
        let former = numbers::high(|| kernel::open(name, libc::O_RDONLY)).map_err(|error| {
            fail(error);
        })?;
        let former = Self(former);
        // SAFETY: a number only.
        match unsafe { libc::unshare(namespace as c_int) } {
            0 => Ok(Some(former)),
            _ => Err(()),
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        // SAFETY: a descriptor of ours.
        unsafe { libc::setns(self.0 .0, PROCESSES as c_int) };
    }
}
