//! The calls of a script on its sockets.

use std::net::SocketAddr;

use bypass_tcp::{Error, Handle, OptionName, Shutdown, LINUX_CLOSED};

use crate::host::{Fresh, Host, Socket};
use crate::kept::{is_kept, TCP_INQ};
use crate::options;
use crate::script::{Result, Script};
use crate::sets::Set;

/// linux/tcp_states.h.
const LINUX_LISTEN: u8 = 10;

/// Bytes in flight to and from the application.
#[derive(Debug, Clone, Copy)]
pub struct Queued {
    /// To be read.
    pub unread: usize,
    /// Written and not acknowledged.
    pub unacknowledged: usize,
    /// Of these, not sent.
    pub unsent: usize,
    /// The next byte to be read is the urgent one.
    pub is_at_mark: bool,
}

fn errno(error: Error) -> i32 {
    error.errno()
}

impl Script {
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

    fn finish_connect(&self, fd: i32, handle: Handle, may_wait: bool) -> Result<()> {
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

    fn await_connection(&self, fd: i32, of: Handle, may_wait: bool) -> Result<()> {
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
    fn open(&self, fd: i32, flags: i32) -> Result<(Handle, bool)> {
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
        let wants_all = flags & libc::MSG_WAITALL != 0;
        let mut done = 0;
        let ended = self.block(may_wait, None, |host| loop {
            let rest = &mut into[done..];
            let got = host.act(|engine, now_us| match flags & libc::MSG_PEEK {
                0 => engine.recv(now_us, handle, rest),
                _ => engine.peek(handle, rest),
            });
            let got = got.map_err(|error| match error {
                // A listener, which has no other end on Linux.
                Error::InvalidArgument => libc::ENOTCONN,
                other => errno(other),
            })?;
            done += got;
            if got == 0 || done == into.len() || !wants_all {
                return Ok(());
            }
        });
        if done > 0 {
            Ok(done)
        } else {
            ended.map(|()| 0)
        }
    }

    /// send(2).
    pub fn send(&self, fd: i32, bytes: &[u8], flags: i32) -> Result<usize> {
        let (handle, may_wait) = self.open(fd, flags).map_err(|error| match error {
            // Writing fails the same way if the socket is not connected and if it has ended
            // (tcp_sendmsg).
            libc::ENOTCONN => libc::EPIPE,
            other => other,
        })?;
        let more = flags & libc::MSG_MORE != 0;
        let (mut done, mut is_first) = (0, true);
        let ended = self.block(may_wait, None, |host| loop {
            // A writer that found no space is woken when there is much of it.
            let ready = host.act(|engine, _| engine.readiness(handle));
            let may_try = is_first || ready.is_ok_and(|ready| ready & bypass_tcp::WRITABLE != 0);
            is_first = false;
            if !may_try {
                return Err(libc::EAGAIN);
            }
            let rest = &bytes[done..];
            let put = host.act(|engine, now_us| match flags & libc::MSG_OOB {
                0 => {
                    let put = engine.send(now_us, handle, rest, more)?;
                    if put == rest.len() && flags & libc::MSG_EOR != 0 {
                        engine.end_record(handle)?;
                    }
                    Ok(put)
                }
                _ => engine.send_urgent(now_us, handle, rest),
            });
            done += put.map_err(errno)?;
            if done == bytes.len() {
                return Ok(());
            }
        });
        if done > 0 {
            Ok(done)
        } else {
            ended.map(|()| 0)
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

    /// close(2) for the engine's object behind a descriptor. False if there is none.
    pub fn close(&self, fd: i32) -> bool {
        let mut state = self.lock();
        let Some(socket) = state.host.sockets.remove(&fd) else {
            return false;
        };
        state.host.kept.forget(fd);
        if let Socket::Open { handle, .. } = socket {
            let _ = state
                .host
                .act(|engine, now_us| engine.close(now_us, handle));
        }
        drop(self.settle(state));
        true
    }

    /// Whether the descriptor belongs to this host.
    pub fn has(&self, fd: i32) -> bool {
        self.lock().host.sockets.contains_key(&fd)
    }

    /// Sets O_NONBLOCK, and returns its former value.
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

    /// Bytes that wait in both directions.
    pub fn queued(&self, fd: i32) -> Result<Queued> {
        let (handle, _) = self.open(fd, 0)?;
        let queued = self.lock().host.act(|engine, _| {
            let (unread, unacknowledged) = engine.queued(handle)?;
            Ok(Queued {
                unread,
                unacknowledged,
                unsent: engine.info(handle)?.unsent as usize,
                is_at_mark: engine.at_mark(handle)?,
            })
        });
        queued.map_err(errno)
    }

    /// Bytes that are left to read, and one for the end of the stream, if the socket asks for them
    /// (TCP_INQ).
    pub fn left(&self, fd: i32) -> Option<i32> {
        if self.lock().host.kept.get(fd, libc::IPPROTO_TCP, TCP_INQ) == 0 {
            return None;
        }
        let queued = self.queued(fd).ok()?;
        let ready = self.lock().host.readiness(fd)?;
        let has_ended = ready & bypass_tcp::PEER_CLOSED != 0;
        Some((queued.unread as i32).max(i32::from(has_ended)))
    }

    /// setsockopt(2).
    pub fn set_option(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<()> {
        let mut state = self.lock();
        if (level, name) == (libc::SOL_IPV6, libc::IPV6_V6ONLY) {
            let fresh = fresh(&mut state.host, fd)?;
            fresh.is_v6_only = value.first().is_some_and(|byte| *byte != 0);
            return Ok(());
        }
        if is_kept(level, name) {
            let value = options::number(level, value)?;
            state.host.kept.set(fd, level, name, value as i32);
            return Ok(());
        }
        let option = options::of_linux(level, name, value)?;
        match state.host.sockets.get_mut(&fd) {
            Some(Socket::Fresh(fresh)) => {
                fresh.settings.set(option).map_err(errno)?;
                fresh.options.push(option);
            }
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
        if is_kept(level, name) {
            let value = state.host.kept.get(fd, level, name);
            return Ok(value.to_ne_bytes().to_vec());
        }
        if let Some(Socket::Fresh(fresh)) = state.host.sockets.get(&fd) {
            return fresh_option(&state.host, fresh, level, name);
        }
        let (handle, _) = opened?;
        let host = &mut state.host;
        let receive = host.act(|engine, _| engine.getopt(handle, OptionName::ReceiveBuffer));
        if let Some(value) = options::of_kernel(level, name, receive.map_err(errno)?) {
            return Ok(value);
        }
        match (level, name) {
            (libc::SOL_SOCKET, libc::SO_ERROR) => {
                let error = host.act(|engine, _| engine.take_error(handle));
                // A listener has none.
                let number = error.unwrap_or(None).map_or(0, errno);
                Ok(number.to_ne_bytes().to_vec())
            }
            (libc::IPPROTO_TCP, libc::TCP_INFO) => {
                // Of a listener the engine reports only its state.
                let info = host.act(|engine, _| engine.info(handle));
                Ok(info.map_or_else(|_| options::tcp_info_of(LINUX_LISTEN), options::tcp_info))
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

    /// poll(2): the events of each; empty after the timeout.
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

/// getsockopt(2) of a socket that is not open.
fn fresh_option(host: &Host, fresh: &Fresh, level: i32, name: i32) -> Result<Vec<u8>> {
    if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) {
        return Ok(0i32.to_ne_bytes().to_vec());
    }
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) {
        return Ok(options::tcp_info_of(LINUX_CLOSED));
    }
    let get = |name| fresh.settings.get_unopened(name, host.config());
    if let Some(value) = options::of_kernel(level, name, get(OptionName::ReceiveBuffer)) {
        return Ok(value);
    }
    let name = options::name_of(level, name).ok_or(libc::ENOPROTOOPT)?;
    Ok(options::to_linux(get(name)))
}
