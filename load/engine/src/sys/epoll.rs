//! One epoll instance. A connection is registered once and changed only when a write came short.

use super::check;
use std::io;

/// Events taken by one wait.
pub const EVENTS_MAX: usize = 128;

/// The buffer that a wait fills.
pub struct Events {
    list: [libc::epoll_event; EVENTS_MAX],
}

impl Default for Events {
    fn default() -> Self {
        Events {
            list: [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX],
        }
    }
}

impl Events {
    /// Token and flags of one event.
    #[inline]
    pub fn get(&self, index: usize) -> (u64, Ready) {
        let event = self.list[index];
        (event.u64, Ready(event.events))
    }
}

/// What an event says.
#[derive(Clone, Copy, Debug)]
pub struct Ready(u32);

impl Ready {
    /// Bytes, the end of the stream, or an error can be read.
    #[inline]
    pub fn readable(self) -> bool {
        self.0 & (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }

    /// The peer has closed its side, or the connection broke.
    #[inline]
    pub fn ended(self) -> bool {
        self.0 & (libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }

    /// The socket takes bytes (or a connect has ended).
    #[inline]
    pub fn writable(self) -> bool {
        self.0 & (libc::EPOLLOUT | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }
}

/// How readiness is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Once per change; the kernel has no ready descriptor to look at twice.
    Edge,
    /// As long as it lasts; for stacks that know only this.
    Level,
}

/// How exactly a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// To the nanosecond, by a direct system call.
    Exact,
    /// Never late: returns up to a millisecond early, and the caller comes again.
    Early,
    /// Up to a millisecond late.
    Late,
}

impl Waits {
    /// For due times: exact, but under a preloaded stack only its `epoll_wait` sees its sockets.
    pub fn for_due_times() -> Waits {
        let preloaded = std::env::var_os("LD_PRELOAD").is_some_and(|value| !value.is_empty());
        if preloaded {
            Waits::Early
        } else {
            Waits::Exact
        }
    }
}

/// An epoll instance.
pub struct Epoll {
    fd: libc::c_int,
    trigger: Trigger,
    waits: Waits,
}

impl Epoll {
    /// Opens an instance.
    pub fn open(trigger: Trigger, waits: Waits) -> io::Result<Epoll> {
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Epoll { fd, trigger, waits })
    }

    /// Registers a socket for its whole life: bytes, the end of the stream, and room if asked for.
    ///
    /// Edge-triggered room costs no wake-ups: the kernel reports it once after a connect, and then
    /// only after a write came short.
    pub fn add(&self, fd: libc::c_int, token: u64, room: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, self.flags(room), token)
    }

    /// Begins or ends waiting for room; with edges there is no need to end it.
    pub fn want_room(&self, fd: libc::c_int, token: u64, room: bool) -> io::Result<()> {
        if self.trigger == Trigger::Edge && !room {
            return Ok(());
        }
        self.control(libc::EPOLL_CTL_MOD, fd, self.flags(room), token)
    }

    fn flags(&self, room: bool) -> u32 {
        let trigger = match self.trigger {
            Trigger::Edge => libc::EPOLLET,
            Trigger::Level => 0,
        };
        let room = if room { libc::EPOLLOUT } else { 0 };
        (libc::EPOLLIN | libc::EPOLLRDHUP | room | trigger) as u32
    }

    fn control(&self, op: libc::c_int, fd: libc::c_int, flags: u32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: flags,
            u64: token,
        };
        // SAFETY: `event` lives until the call returns.
        check(unsafe { libc::epoll_ctl(self.fd, op, fd, &mut event) }).map(drop)
    }

    /// Waits at most `timeout_ns`; the number of events. An interrupted wait has none.
    #[inline]
    pub fn wait(&mut self, events: &mut Events, timeout_ns: u64) -> usize {
        const MILLISECOND_NS: u64 = 1_000_000;
        let near = timeout_ns != 0 && timeout_ns < 64 * MILLISECOND_NS;
        let timeout_ms = match self.waits {
            Waits::Exact if near => return self.wait_exactly(events, timeout_ns),
            Waits::Late => timeout_ns.div_ceil(MILLISECOND_NS),
            Waits::Exact | Waits::Early => timeout_ns / MILLISECOND_NS,
        };
        let timeout_ms = timeout_ms.min(i32::MAX as u64) as i32;
        // SAFETY: the buffer has room for EVENTS_MAX events.
        let n = unsafe {
            libc::epoll_wait(
                self.fd,
                events.list.as_mut_ptr(),
                EVENTS_MAX as i32,
                timeout_ms,
            )
        };
        n.max(0) as usize
    }

    fn wait_exactly(&mut self, events: &mut Events, timeout_ns: u64) -> usize {
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: timeout_ns as libc::c_long,
        };
        // SAFETY: buffer and timespec are valid for the call; no signal mask is given.
        let n = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd,
                events.list.as_mut_ptr(),
                EVENTS_MAX as libc::c_int,
                &time,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        if n < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
            self.waits = Waits::Early;
        }
        n.max(0) as usize
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and not used afterwards.
        unsafe { libc::close(self.fd) };
    }
}
