//! Signals about a descriptor: their receiver, number and contents (fcntl(2), sigaction(2)).

use crate::kernel::{check, fcntl, getpid, gettid, getuid, kill, raw, tgkill};

/// The receiver that F_SETOWN or F_SETOWN_EX has set for a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A thread, by number.
    Thread(i32),
    /// A process.
    Process(i32),
    /// A process group.
    Group(i32),
}

/// `struct f_owner_ex` of fcntl.h.
#[repr(C)]
struct OwnerEx {
    kind: i32,
    number: i32,
}

const OF_THREAD: i32 = 0;
const OF_PROCESS: i32 = 1;
const F_GETOWN_EX: i32 = 16;
const F_SETOWN_EX: i32 = 15;
const F_GETSIG: i32 = 11;
const F_SETSIG: i32 = 10;

/// The owner of a descriptor, None if it has none.
pub fn owner_of(fd: i32) -> Option<Owner> {
    let mut owner = OwnerEx { kind: 0, number: 0 };
    fcntl(fd, F_GETOWN_EX, &raw mut owner as usize).ok()?;
    match (owner.kind, owner.number) {
        (_, 0) => None,
        (OF_THREAD, number) => Some(Owner::Thread(number)),
        (OF_PROCESS, number) => Some(Owner::Process(number)),
        (_, number) => Some(Owner::Group(number)),
    }
}

/// The signal that F_SETSIG has chosen for a descriptor, None for SIGIO without information.
pub fn signal_of(fd: i32) -> Option<i32> {
    let signal = fcntl(fd, F_GETSIG, 0).ok()? as i32;
    (signal != 0).then_some(signal)
}

/// A descriptor gets the owner and the signal of another one.
pub fn copy_owner(from: i32, to: i32) {
    let mut owner = OwnerEx { kind: 0, number: 0 };
    let at = &raw mut owner as usize;
    if fcntl(from, F_GETOWN_EX, at).is_ok() && owner.number != 0 {
        let _ = fcntl(to, F_SETOWN_EX, at);
    }
    if let Some(signal) = signal_of(from) {
        let _ = fcntl(to, F_SETSIG, signal as usize);
    }
}

/// The start of `siginfo_t` as signals of descriptors fill it.
#[repr(C)]
struct Information {
    signal: i32,
    error: i32,
    code: i32,
    padding: i32,
    band: i64,
    fd: i32,
    rest: [i32; 25],
}

const _: () = assert!(size_of::<Information>() == 128);

/// The only code of siginfo.h for such signals that the kernel accepts from a program.
const SI_SIGIO: i32 = -5;

/// The code of signals that the kernel sends for a call of the program's own.
const SI_USER: i32 = 0;

/// Sends the calling thread a signal as the kernel does for a call of that thread: from its own process and user.
pub fn raise(signal: i32) {
    let [process, thread, user] = [getpid(), gettid(), getuid()].map(|number| number.unwrap_or(0));
    let information = Information {
        signal,
        error: 0,
        code: SI_USER,
        padding: 0,
        // Number of the process, and behind it the user's.
        band: (process | user << 32) as i64,
        fd: 0,
        rest: [0; 25],
    };
    let place = &raw const information as usize;
    let words = [process, thread, signal as usize, place, 0, 0];
    // SAFETY: the kernel reads 128 bytes, which live on this frame.
    if check(unsafe { raw(libc::SYS_rt_tgsigqueueinfo, words) }).is_err() {
        let _ = tgkill(process as i32, thread as i32, signal);
    }
}

/// Sends a signal; `about` is its contents: the events of poll(2), and the descriptor. A group gets
/// only the number.
pub fn send(to: Owner, signal: i32, about: Option<(i64, i32)>) {
    if about.is_some_and(|about| queue(to, signal, about)) {
        return;
    }
    let _ = match to {
        Owner::Process(process) => kill(process, signal),
        Owner::Group(group) => kill(-group, signal),
        Owner::Thread(thread) => {
            let words = [thread as usize, signal as usize, 0, 0, 0, 0];
            // SAFETY: numbers only.
            check(unsafe { raw(libc::SYS_tkill, words) })
        }
    };
}

/// False if the queue is full, or the receiver does not exist.
fn queue(to: Owner, signal: i32, (band, fd): (i64, i32)) -> bool {
    let information = Information {
        signal,
        error: 0,
        code: SI_SIGIO,
        padding: 0,
        band,
        fd,
        rest: [0; 25],
    };
    let (signal, place) = (signal as usize, &raw const information as usize);
    let (number, words) = match to {
        Owner::Process(process) => (
            libc::SYS_rt_sigqueueinfo,
            [process as usize, signal, place, 0, 0, 0],
        ),
        Owner::Thread(thread) => (
            libc::SYS_rt_tgsigqueueinfo,
            [getpid().unwrap_or(0), thread as usize, signal, place, 0, 0],
        ),
        Owner::Group(_) => return false,
    };
    // SAFETY: the kernel reads 128 bytes, which live on this frame.
    check(unsafe { raw(number, words) }).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::descriptor::Owned;
    use crate::kernel::socket;

    #[test]
    fn an_owner_and_its_signal_are_copied() {
        let [from, to] = [(); 2].map(|()| {
            let made = socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            Owned(made.expect("a socket") as i32)
        });
        copy_owner(from.0, to.0);
        assert_eq!((owner_of(to.0), signal_of(to.0)), (None, None));
        let own = getpid().expect("a number");
        fcntl(from.0, libc::F_SETOWN, own).expect("an owner");
        fcntl(from.0, F_SETSIG, libc::SIGUSR2 as usize).expect("a signal");
        copy_owner(from.0, to.0);
        let owner = Some(Owner::Process(own as i32));
        assert_eq!(
            (owner_of(to.0), signal_of(to.0)),
            (owner, Some(libc::SIGUSR2))
        );
    }
}
