//! The calls of a script, safe: blocking ones wait in virtual time.
//!
//! packetdrill makes calls that block in a thread of their own, while its first thread lets time pass
//! and packets arrive. So that a run is the same each time, the first thread waits, before time goes on,
//! until every call that can end has ended and its caller has looked at the clock.

use std::net::SocketAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use bypass_tcp::{Error, Shutdown};

use crate::host::{Fresh, Host, Socket};
use crate::options;
use crate::sets::Set;

/// How long anything here waits for another thread, in real time: more is a script that hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a caller may take to look at the clock after its call.
const RETURN_MAX: Duration = Duration::from_millis(200);

/// A result, or an error number.
pub type Result<T> = std::result::Result<T, i32>;

/// One script's host. See the module.
#[derive(Debug)]
pub struct Script {
    state: Mutex<State>,
    changed: Condvar,
    first: ThreadId,
}

#[derive(Debug)]
struct State {
    host: Host,
    /// Threads in calls that wait, and those of them that have still to look again.
    blocked: usize,
    looking: usize,
    /// Changes with every reason to look again.
    round: u64,
    /// Their calls have ended; they have not looked at the clock.
    returning: Vec<ThreadId>,
}

fn errno(error: Error) -> i32 {
    error.errno()
}

impl Script {
    /// Called by packetdrill's first thread.
    pub fn new(host: Host) -> Self {
        let state = State {
            host,
            blocked: 0,
            looking: 0,
            round: 0,
            returning: Vec::new(),
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            first: std::thread::current().id(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(
        &self,
        guard: MutexGuard<'a, State>,
        most: Duration,
        mut is_over: impl FnMut(&mut State) -> bool,
    ) -> MutexGuard<'a, State> {
        self.changed
            .wait_timeout_while(guard, most, |state| !is_over(state))
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Something has happened: calls that wait look again, and those that end do so before time goes on.
    fn settle<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.blocked > 0 {
            state.round += 1;
            state.looking = state.blocked;
            self.changed.notify_all();
            state = self.wait(state, PATIENCE, |state| state.looking == 0);
        }
        self.wait(state, RETURN_MAX, |state| state.returning.is_empty())
    }

    fn is_first(&self) -> bool {
        std::thread::current().id() == self.first
    }

    /// Tries until it does not say EAGAIN, and no longer than to `end_us`.
    fn block<T>(
        &self,
        may_wait: bool,
        end_us: Option<u64>,
        mut attempt: impl FnMut(&mut Host) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.lock();
        let mut done = attempt(&mut state.host);
        if !may_wait || !matches!(done, Err(libc::EAGAIN)) {
            return done;
        }
        if self.is_first() {
            return self.pass_time(state, end_us, attempt);
        }
        state.blocked += 1;
        while matches!(done, Err(libc::EAGAIN)) {
            let round = state.round;
            state = self.wait(state, PATIENCE, |state| state.round != round);
            if state.round == round {
                break;
            }
            done = attempt(&mut state.host);
            state.looking -= 1;
            if end_us.is_some_and(|end| state.host.now_us() >= end) {
                break;
            }
            self.changed.notify_all();
        }
        state.blocked -= 1;
        state.returning.push(std::thread::current().id());
        self.changed.notify_all();
        done
    }

    /// The thread by which time passes waits itself.
    fn pass_time<T>(
        &self,
        mut state: MutexGuard<'_, State>,
        end_us: Option<u64>,
        mut attempt: impl FnMut(&mut Host) -> Result<T>,
    ) -> Result<T> {
        loop {
            let next = state.host.next_timer();
            let until = match (next, end_us) {
                (Some(next), Some(end)) => next.min(end),
                (Some(one), None) | (None, Some(one)) => one,
                (None, None) => return Err(libc::EAGAIN),
            };
            state.host.advance(until);
            state = self.settle(state);
            match attempt(&mut state.host) {
                Err(libc::EAGAIN) if end_us.is_none_or(|end| until < end) => {}
                done => return done,
            }
        }
    }

    // Time and packets.

    /// The clock, which moves a little whenever it is read.
    pub fn clock(&self) -> u64 {
        let me = std::thread::current().id();
        let mut state = self.lock();
        state.returning.retain(|thread| *thread != me);
        self.changed.notify_all();
        if self.is_first() {
            state = self.settle_returning(state);
            let next = state.host.now_us() + 1;
            state.host.advance(next);
            state = self.settle(state);
        }
        state.host.now_us()
    }

    fn settle_returning<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.wait(state, RETURN_MAX, |state| state.returning.is_empty())
    }

    /// usleep(3).
    pub fn sleep(&self, us: u64) {
        let mut state = self.lock();
        let end = state.host.now_us() + us;
        while let Some(next) = state.host.next_timer().filter(|next| *next <= end) {
            state.host.advance(next);
            state = self.settle(state);
        }
        state.host.advance(end);
        drop(self.settle(state));
    }

    /// An IP packet arrives from outside.
    pub fn arrive(&self, packet: &[u8]) -> Result<()> {
        let mut state = self.lock();
        if !state.host.arrive(packet) {
            return Err(libc::EINVAL);
        }
        drop(self.settle(state));
        Ok(())
    }

    /// The next IP packet that leaves, and when: time passes until there is one.
    pub fn leave(&self) -> Option<(u64, Vec<u8>)> {
        let mut state = self.lock();
        loop {
            if let Some(packet) = state.host.pop_packet() {
                return Some(packet);
            }
            let next = state.host.next_timer()?;
            state.host.advance(next);
            state = self.settle(state);
        }
    }

    // Sockets.

    /// A new socket behind `fd`.
    pub fn add(&self, fd: i32, is_nonblocking: bool) {
        let fresh = Fresh {
            is_nonblocking,
            ..Fresh::default()
        };
        self.lock().host.sockets.insert(fd, Socket::Fresh(fresh));
    }

    /// A new epoll set behind `fd`.
    pub fn add_set(&self, fd: i32) {
        let set = Socket::Set(Set::default());
        self.lock().host.sockets.insert(fd, set);
    }

    /// bind(2).
    pub fn bind(&self, fd: i32, at: SocketAddr) -> Result<()> {
        let mut state = self.lock();
        state.host.add_address(at.ip());
        fresh(&mut state.host, fd)?.local = Some(at);
        Ok(())
    }

    /// listen(2).
    pub fn listen(&self, fd: i32, backlog: i32) -> Result<()> {
        let mut state = self.lock();
        let taken = std::mem::take(fresh(&mut state.host, fd)?);
        let backlog = u32::try_from(backlog).unwrap_or(u32::MAX);
        let handle = state.host.listen(&taken, backlog).map_err(errno)?;
        let open = Socket::Open {
            handle,
            is_nonblocking: taken.is_nonblocking,
            is_connecting: false,
        };
        state.host.sockets.insert(fd, open);
        Ok(())
    }

    /// accept(2): `new` is the descriptor of the connection. Its remote end.
    pub fn accept(&self, fd: i32, new: i32) -> Result<SocketAddr> {
        let (handle, may_wait) = self.open(fd, 0)?;
        self.block(may_wait, None, |host| {
            let accepted = host.act(|engine, _| engine.accept(handle)).map_err(errno)?;
            let open = Socket::Open {
                handle: accepted,
                is_nonblocking: false,
                is_connecting: false,
            };
            host.sockets.insert(new, open);
            host.act(|engine, _| engine.remote_addr(accepted))
                .map_err(errno)
        })
    }

    /// connect(2).
    pub fn connect(&self, fd: i32, to: SocketAddr) -> Result<()> {
        if let Ok((handle, may_wait)) = self.open(fd, 0) {
            return self.finish_connect(fd, handle, may_wait);
        }
        let mut state = self.lock();
        let taken = std::mem::take(fresh(&mut state.host, fd)?);
        let handle = state.host.connect(&taken, to).map_err(errno)?;
        let open = Socket::Open {
            handle,
            is_nonblocking: taken.is_nonblocking,
            is_connecting: true,
        };
        state.host.sockets.insert(fd, open);
        drop(state);
        if taken.is_nonblocking {
            return Err(libc::EINPROGRESS);
        }
        self.await_connection(fd, handle, true)
    }

    fn finish_connect(&self, fd: i32, handle: bypass_tcp::Handle, may_wait: bool) -> Result<()> {
        let is_connecting = matches!(
            self.lock().host.sockets.get(&fd),
            Some(Socket::Open {
                is_connecting: true,
                ..
            })
        );
        if !is_connecting {
            return Err(libc::EISCONN);
        }
        match self.await_connection(fd, handle, may_wait) {
            Err(libc::EAGAIN) => Err(libc::EALREADY),
            done => done,
        }
    }

    fn await_connection(&self, fd: i32, of: bypass_tcp::Handle, may_wait: bool) -> Result<()> {
        self.block(may_wait, None, |host| {
            let error = host.act(|engine, _| engine.take_error(of)).map_err(errno)?;
            if let Some(error) = error {
                return Err(errno(error));
            }
            let ready = host.act(|engine, _| engine.readiness(of)).map_err(errno)?;
            if ready & bypass_tcp::WRITABLE == 0 {
                return Err(libc::EAGAIN);
            }
            if let Some(Socket::Open { is_connecting, .. }) = host.sockets.get_mut(&fd) {
                *is_connecting = false;
            }
            Ok(())
        })
    }

    /// The engine's handle, and whether a call with these flags may wait.
    fn open(&self, fd: i32, flags: i32) -> Result<(bypass_tcp::Handle, bool)> {
        match self.lock().host.sockets.get(&fd) {
            Some(Socket::Open {
                handle,
                is_nonblocking,
                ..
            }) => Ok((*handle, !is_nonblocking && flags & libc::MSG_DONTWAIT == 0)),
            Some(Socket::Fresh(_)) => Err(libc::ENOTCONN),
            Some(Socket::Set(_)) => Err(libc::EINVAL),
            None => Err(libc::EBADF),
        }
    }

    /// recv(2).
    pub fn receive(&self, fd: i32, into: &mut [u8], flags: i32) -> Result<usize> {
        let (handle, may_wait) = self.open(fd, flags)?;
        if flags & libc::MSG_OOB != 0 {
            let byte = self.lock().host.act(|engine, _| engine.recv_urgent(handle));
            *into.first_mut().ok_or(libc::EINVAL)? = byte.map_err(errno)?;
            return Ok(1);
        }
        let mut done = 0;
        loop {
            let rest = &mut into[done..];
            let got = self.block(may_wait, None, |host| {
                let got = host.act(|engine, now_us| match flags & libc::MSG_PEEK {
                    0 => engine.recv(now_us, handle, rest),
                    _ => engine.peek(handle, rest),
                });
                got.map_err(errno)
            });
            match got {
                Ok(got) => done += got,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
            let wants_all = flags & libc::MSG_WAITALL != 0 && done < into.len();
            if !wants_all || got == Ok(0) {
                return Ok(done);
            }
        }
    }

    /// send(2).
    pub fn send(&self, fd: i32, bytes: &[u8], flags: i32) -> Result<usize> {
        let (handle, may_wait) = self.open(fd, flags)?;
        let more = flags & libc::MSG_MORE != 0;
        let mut done = 0;
        loop {
            let rest = &bytes[done..];
            let put = self.block(may_wait, None, |host| {
                let put = host.act(|engine, now_us| match flags & libc::MSG_OOB {
                    0 => engine.send(now_us, handle, rest, more),
                    _ => engine.send_urgent(now_us, handle, rest),
                });
                put.map_err(errno)
            });
            match put {
                Ok(put) => done += put,
                Err(_) if done > 0 => return Ok(done),
                Err(error) => return Err(error),
            }
            if !may_wait || done == bytes.len() {
                return Ok(done);
            }
        }
    }

    /// shutdown(2).
    pub fn shutdown(&self, fd: i32, how: i32) -> Result<()> {
        let (handle, _) = self.open(fd, 0)?;
        let how = match how {
            libc::SHUT_RD => Shutdown::Read,
            libc::SHUT_WR => Shutdown::Write,
            libc::SHUT_RDWR => Shutdown::Both,
            _ => return Err(libc::EINVAL),
        };
        let mut state = self.lock();
        let done = state
            .host
            .act(|engine, now_us| engine.shutdown(now_us, handle, how));
        drop(self.settle(state));
        done.map_err(errno)
    }

    /// close(2), of what the engine has behind a descriptor. False: it has nothing.
    pub fn close(&self, fd: i32) -> bool {
        let mut state = self.lock();
        let Some(socket) = state.host.sockets.remove(&fd) else {
            return false;
        };
        if let Socket::Open { handle, .. } = socket {
            let _ = state
                .host
                .act(|engine, now_us| engine.close(now_us, handle));
        }
        drop(self.settle(state));
        true
    }

    /// Whether the descriptor is of this host.
    pub fn has(&self, fd: i32) -> bool {
        self.lock().host.sockets.contains_key(&fd)
    }

    /// O_NONBLOCK as it was, and as it is from now on.
    pub fn set_nonblocking(&self, fd: i32, on: Option<bool>) -> Result<bool> {
        let mut state = self.lock();
        let flag = match state.host.sockets.get_mut(&fd) {
            Some(Socket::Fresh(fresh)) => &mut fresh.is_nonblocking,
            Some(Socket::Open { is_nonblocking, .. }) => is_nonblocking,
            Some(Socket::Set(_)) => return Err(libc::EINVAL),
            None => return Err(libc::EBADF),
        };
        let was = *flag;
        *flag = on.unwrap_or(was);
        Ok(was)
    }

    /// Bytes that wait to be read, and bytes that are not acknowledged.
    pub fn queued(&self, fd: i32) -> Result<(usize, usize)> {
        let (handle, _) = self.open(fd, 0)?;
        let queued = self.lock().host.act(|engine, _| engine.queued(handle));
        queued.map_err(errno)
    }

    /// setsockopt(2).
    pub fn set_option(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<()> {
        let mut state = self.lock();
        if (level, name) == (libc::SOL_IPV6, libc::IPV6_V6ONLY) {
            let fresh = fresh(&mut state.host, fd)?;
            fresh.is_v6_only = value.first().is_some_and(|byte| *byte != 0);
            return Ok(());
        }
        let Some(option) = options::of_linux(level, name, value)? else {
            return Ok(());
        };
        match state.host.sockets.get_mut(&fd) {
            Some(Socket::Fresh(fresh)) => fresh.options.push(option),
            Some(Socket::Open { handle, .. }) => {
                let handle = *handle;
                let set = state
                    .host
                    .act(|engine, now_us| engine.setopt(now_us, handle, option));
                set.map_err(errno)?;
            }
            Some(Socket::Set(_)) => return Err(libc::ENOTSOCK),
            None => return Err(libc::EBADF),
        }
        Ok(())
    }

    /// getsockopt(2).
    pub fn option(&self, fd: i32, level: i32, name: i32) -> Result<Vec<u8>> {
        let opened = self.open(fd, 0);
        let mut state = self.lock();
        if let (Some(Socket::Fresh(_)), libc::SOL_SOCKET, libc::SO_ERROR) =
            (state.host.sockets.get(&fd), level, name)
        {
            return Ok(0i32.to_ne_bytes().to_vec());
        }
        let (handle, _) = opened?;
        let host = &mut state.host;
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                let error = host.act(|engine, _| engine.take_error(handle));
                let number = error.map_err(errno)?.map_or(0, errno);
                Ok(number.to_ne_bytes().to_vec())
            }
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                let info = host.act(|engine, _| engine.info(handle)).map_err(errno)?;
                Ok(options::tcp_info(&info))
            }
            _ => {
                let name = options::name_of(level, name).ok_or(libc::ENOPROTOOPT)?;
                let value = host.act(|engine, _| engine.getopt(handle, name));
                Ok(options::to_linux(value.map_err(errno)?))
            }
        }
    }

    fn end_of(&self, timeout_ms: i32) -> Option<u64> {
        let us = u64::try_from(timeout_ms).ok()? * 1000;
        Some(self.lock().host.now_us() + us)
    }

    /// poll(2): what holds of each; an empty answer when the time is over.
    pub fn poll(&self, wanted: &[(i32, u32)], timeout_ms: i32) -> Vec<u32> {
        const ALWAYS: u32 = (libc::POLLERR | libc::POLLHUP) as u32;
        let end_us = self.end_of(timeout_ms);
        let found = self.block(timeout_ms != 0, end_us, |host| {
            let look = |(fd, events): &(i32, u32)| match host.readiness(*fd) {
                Some(ready) => ready & (events | ALWAYS),
                None if *fd < 0 => 0,
                None => libc::POLLNVAL as u32,
            };
            let found: Vec<u32> = wanted.iter().map(look).collect();
            match found.iter().any(|one| *one != 0) {
                true => Ok(found),
                false => Err(libc::EAGAIN),
            }
        });
        found.unwrap_or_default()
    }

    /// epoll_ctl(2).
    pub fn control(&self, set: i32, command: i32, fd: i32, event: (u32, u64)) -> Result<()> {
        let mut state = self.lock();
        if !state.host.sockets.contains_key(&fd) {
            return Err(libc::EBADF);
        }
        let (events, data) = event;
        match state.host.sockets.get_mut(&set) {
            Some(Socket::Set(set)) => set.control(command, fd, events, data),
            Some(_) => Err(libc::EINVAL),
            None => Err(libc::EBADF),
        }
    }

    /// epoll_wait(2): events and data.
    pub fn wait_for(&self, set: i32, most: usize, timeout_ms: i32) -> Result<Vec<(u32, u64)>> {
        let end_us = self.end_of(timeout_ms);
        let found = self.block(timeout_ms != 0, end_us, |host| {
            let fds = match host.sockets.get(&set) {
                Some(Socket::Set(set)) => set.fds(),
                Some(_) => return Err(libc::EINVAL),
                None => return Err(libc::EBADF),
            };
            let ready = |fd: &i32| host.readiness(*fd).unwrap_or(0);
            let ready: Vec<u32> = fds.iter().map(ready).collect();
            let Some(Socket::Set(set)) = host.sockets.get_mut(&set) else {
                return Err(libc::EBADF);
            };
            match set.collect(&ready, most) {
                found if found.is_empty() => Err(libc::EAGAIN),
                found => Ok(found),
            }
        });
        match found {
            Err(libc::EAGAIN) => Ok(Vec::new()),
            other => other,
        }
    }
}

fn fresh(host: &mut Host, fd: i32) -> Result<&mut Fresh> {
    match host.sockets.get_mut(&fd) {
        Some(Socket::Fresh(fresh)) => Ok(fresh),
        Some(Socket::Open { .. }) => Err(libc::EINVAL),
        Some(Socket::Set(_)) => Err(libc::ENOTSOCK),
        None => Err(libc::EBADF),
    }
}
