//! One epoll instance. A connection is registered once and changed only when a write came short.
//!
//! Where waits need not end to the nanosecond, they end by an alarm: a timer in the set, which is
//! set ten times a second. A timeout would be set up and taken down with each wait that sleeps.

use super::{check, direct, is_preloaded};
use std::io;

/// Events taken by one wait.
pub const EVENTS_MAX: usize = 128;

/// Packets that one busy poll takes at most: as many as the kernel's own polls, and no privilege is needed.
const BUSY_POLL_PACKETS: u16 = 64;

/// A wait that only events and the alarm end.
pub const FOREVER_NS: u64 = u64::MAX;
/// The token of the alarm's event; no connection has it.
const ALARM_TOKEN: u64 = u64::MAX;

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

/// The flags of an event.
#[derive(Clone, Copy, Debug)]
pub struct Ready(u32);

impl Ready {
    /// The flags of an event of a descriptor, if one came now.
    pub fn now(fd: libc::c_int) -> Ready {
        let mut asked = libc::pollfd {
            fd,
            events: libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP,
            revents: 0,
        };
        // SAFETY: the call reads and writes the one entry, which lives until it returns.
        let n = unsafe { libc::poll(&raw mut asked, 1, 0) };
        // poll and epoll have the same flags
        Ready(if n > 0 { asked.revents as u32 } else { 0 })
    }

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
        if is_preloaded() {
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
    alarm: Option<Alarm>,
}

/// A timer that ends waits, and when; 0 if it is not set.
struct Alarm {
    fd: libc::c_int,
    at_ns: u64,
}

impl Epoll {
    /// Opens an instance.
    pub fn open(trigger: Trigger, waits: Waits) -> io::Result<Epoll> {
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Epoll {
            fd,
            trigger,
            waits,
            alarm: None,
        })
    }

    /// Lets a wait poll the network cards of its sockets for so long before it sleeps. An error where the
    /// kernel cannot (before Linux 6.9).
    pub fn set_busy_poll(&self, poll_us: u32) -> io::Result<()> {
        let params = libc::epoll_params {
            busy_poll_usecs: poll_us,
            busy_poll_budget: BUSY_POLL_PACKETS,
            // would keep interrupts off beyond the poll, where the card is set up for it
            prefer_busy_poll: 0,
            __pad: 0,
        };
        let pointer: *const libc::epoll_params = &params;
        // SAFETY: the call reads the parameters, which live until it returns.
        check(unsafe { libc::ioctl(self.fd, libc::EPIOCSPARAMS, pointer) }).map(drop)
    }

    /// Adds the alarm, unless a preloaded stack would have to bear a kernel descriptor in its set.
    pub fn add_alarm(&mut self) -> io::Result<()> {
        if is_preloaded() {
            return Ok(());
        }
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: no pointers are passed.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        self.alarm = Some(Alarm { fd, at_ns: 0 });
        // an edge needs no read: each time that it goes off is one
        let flags = (libc::EPOLLIN | libc::EPOLLET) as u32;
        self.control(libc::EPOLL_CTL_ADD, fd, flags, ALARM_TOKEN)
    }

    /// Lets the alarm end a wait at `at_ns` (monotonic); false without an alarm.
    #[inline]
    pub fn set_alarm(&mut self, at_ns: u64) -> bool {
        let at_ns = at_ns.max(1);
        match &mut self.alarm {
            Some(alarm) if alarm.at_ns == at_ns => true,
            Some(alarm) => alarm.set(at_ns),
            None => false,
        }
    }

    /// Registers a socket for its whole life: bytes, the end of the stream, and room if asked for.
    ///
    /// Edge-triggered room costs no wake-ups: the kernel reports it once after a connect, and then
    /// only after a write came short.
    pub fn add(&self, fd: libc::c_int, token: u64, room: bool) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, self.flags(room), token)
    }

    /// Begins or ends waiting for room; edges need no end.
    pub fn want_room(&self, fd: libc::c_int, token: u64, room: bool) -> io::Result<()> {
        if self.trigger == Trigger::Edge && !room {
            return Ok(());
        }
        self.control(libc::EPOLL_CTL_MOD, fd, self.flags(room), token)
    }

    /// Ends waiting for room where each datagram that has left is an edge (UDP).
    pub fn want_no_room(&self, fd: libc::c_int, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, self.flags(false), token)
    }

    /// Waits for room alone, until `want_room` is called: what comes meanwhile stays unread.
    pub fn only_room(&self, fd: libc::c_int, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, libc::EPOLLOUT as u32, token)
    }

    /// Waits for nothing on this descriptor, until `want_room` is called.
    pub fn want_nothing(&self, fd: libc::c_int, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, 0, token)
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
            _ if timeout_ns == FOREVER_NS => return self.wait_ms(events, -1),
            Waits::Exact if near => return self.wait_exactly(events, timeout_ns),
            Waits::Late => timeout_ns.div_ceil(MILLISECOND_NS),
            Waits::Exact | Waits::Early => timeout_ns / MILLISECOND_NS,
        };
        self.wait_ms(events, timeout_ms.min(i32::MAX as u64) as i32)
    }

    #[inline]
    fn wait_ms(&mut self, events: &mut Events, timeout_ms: i32) -> usize {
        if direct::is_usable() {
            return direct::wait(self.fd, &mut events.list, timeout_ms).max(0) as usize;
        }
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
        // an old kernel says ENOSYS, a sandbox that does not know the call EPERM or what it likes
        if n < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            self.waits = Waits::Early;
        }
        n.max(0) as usize
    }
}

impl Alarm {
    /// Sets it; false if the kernel did not.
    fn set(&mut self, at_ns: u64) -> bool {
        const SECOND_NS: u64 = 1_000_000_000;
        let once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let time = libc::itimerspec {
            it_interval: once,
            it_value: libc::timespec {
                tv_sec: (at_ns / SECOND_NS) as libc::time_t,
                tv_nsec: (at_ns % SECOND_NS) as libc::c_long,
            },
        };
        let flags = libc::TFD_TIMER_ABSTIME;
        // SAFETY: the new time is valid for the call; the old one is not asked for.
        let result = unsafe { libc::timerfd_settime(self.fd, flags, &time, std::ptr::null_mut()) };
        self.at_ns = if result == 0 { at_ns } else { 0 };
        result == 0
    }
}

impl Drop for Epoll {
    fn drop(&mut self) {
        if let Some(alarm) = &self.alarm {
            // SAFETY: this object owns the descriptor and does not use it afterwards.
            unsafe { libc::close(alarm.fd) };
        }
        // SAFETY: this object owns the descriptor and does not use it afterwards.
        unsafe { libc::close(self.fd) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::clock::monotonic_ns;

    #[test]
    fn the_alarm_ends_a_wait_each_time_it_is_set() {
        let mut epoll = Epoll::open(Trigger::Edge, Waits::Late).expect("an instance");
        epoll.add_alarm().expect("a timer");
        let mut events = Events::default();
        for _ in 0..3 {
            let at_ns = monotonic_ns() + 2_000_000;
            assert!(epoll.set_alarm(at_ns));
            assert_eq!(epoll.wait(&mut events, FOREVER_NS), 1);
            assert_eq!(events.get(0).0, ALARM_TOKEN);
            assert!(monotonic_ns() >= at_ns, "not before its time");
        }
        assert!(epoll.set_alarm(1), "a time that is over");
        assert_eq!(epoll.wait(&mut events, FOREVER_NS), 1);
        assert_eq!(epoll.wait(&mut events, 0), 0, "once only");
    }

    #[test]
    fn a_kernel_that_polls_for_a_set_keeps_the_time() {
        let epoll = Epoll::open(Trigger::Edge, Waits::Late).expect("an instance");
        let set = epoll.set_busy_poll(50);
        let mut params = libc::epoll_params {
            busy_poll_usecs: 0,
            busy_poll_budget: 0,
            prefer_busy_poll: 0,
            __pad: 0,
        };
        let pointer: *mut libc::epoll_params = &mut params;
        // SAFETY: the call writes the parameters, which live until it returns.
        let told = unsafe { libc::ioctl(epoll.fd, libc::EPIOCGPARAMS, pointer) };
        assert_eq!(set.is_ok(), told == 0, "an older kernel knows neither call");
        let expected = if told == 0 { (50, 64) } else { (0, 0) };
        assert_eq!((params.busy_poll_usecs, params.busy_poll_budget), expected);
    }

    /// From here on the calling thread's `epoll_pwait2` fails with EPERM, as below a container's
    /// seccomp filter that is older than the call.
    fn refuse_exact_waits() {
        let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        let jump = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        let give = (libc::BPF_RET | libc::BPF_K) as u16;
        let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let mut filter = [
            step(load, 0, 0, 0), // the number of the call
            step(jump, 0, 1, libc::SYS_epoll_pwait2 as u32),
            step(give, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            step(give, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: the program and its filter live until the call returns.
        let refused = unsafe {
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)).expect("allowed to all");
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program)
        };
        check(refused).expect("a filter of this thread");
    }

    #[test]
    fn a_sandbox_that_forbids_exact_waits_gets_others_and_no_busy_loop() {
        let waited = std::thread::spawn(|| {
            refuse_exact_waits();
            let mut epoll = Epoll::open(Trigger::Edge, Waits::Exact).expect("an instance");
            let mut events = Events::default();
            epoll.wait(&mut events, 5_000_000);
            let before_ns = monotonic_ns();
            epoll.wait(&mut events, 5_000_000);
            monotonic_ns() - before_ns
        });
        let waited_ns = waited.join().expect("no panic");
        assert!(waited_ns >= 4_000_000, "{waited_ns} ns");
    }
}
