//! A netlink socket: requests with their responses, and notifications.

use bypass_sys::descriptor::Owned;
use bypass_sys::kernel::{self, Result};
use bypass_sys::numbers;

use crate::message::{messages, u32_at, Message, Request};

/// The kernel sends no larger datagram to a reader of 32 KiB pieces (netlink(7)).
const DATAGRAM: usize = 32_768;
/// How often a dump is repeated that other changes interrupt.
const DUMPS_MAX: usize = 8;
/// Bytes of queued notifications.
const NEWS_BYTES: i32 = 1 << 20;

/// A netlink socket.
pub struct Socket {
    fd: Owned,
    sequence: u32,
    datagram: Vec<u8>,
}

impl std::fmt::Debug for Socket {
    /// Without the buffer, whose 64 KiB say nothing.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        to.debug_struct("Socket").finish_non_exhaustive()
    }
}

impl Socket {
    /// Opens one of NETLINK_ROUTE that receives notifications of `groups` (RTMGRP_…); 0 for none.
    pub fn open(groups: u32) -> Result<Self> {
        Self::of(libc::NETLINK_ROUTE, groups)
    }

    /// Opens one of another protocol (NETLINK_…).
    pub fn of(protocol: i32, groups: u32) -> Result<Self> {
        let blocking = if groups == 0 { 0 } else { libc::SOCK_NONBLOCK };
        let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | blocking;
        let fd = numbers::high(|| kernel::socket(libc::AF_NETLINK, kind, protocol))?;
        let mut name = [0u8; 12];
        name[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
        name[8..].copy_from_slice(&groups.to_ne_bytes());
        kernel::bind(fd.0, &name)?;
        if groups != 0 {
            // Best effort: a loss is noticed (ENOBUFS) and everything is read again.
            let _ = kernel::set_option_int(fd.0, libc::SOL_SOCKET, libc::SO_RCVBUF, NEWS_BYTES);
        }
        Ok(Self {
            fd,
            sequence: 0,
            datagram: vec![0; DATAGRAM],
        })
    }

    /// The descriptor alone.
    pub fn into_fd(self) -> Owned {
        self.fd
    }

    /// For polling until readable: there are notifications.
    pub fn fd(&self) -> i32 {
        self.fd.0
    }

    /// Dumps all items of a kind, again if the table changed during the dump.
    pub fn dump(
        &mut self,
        request: impl Fn() -> Request,
        each: &mut dyn FnMut(Message),
    ) -> Result<()> {
        for _ in 0..DUMPS_MAX {
            match self.ask(request(), each) {
                Err(libc::EINTR) => {}
                other => return other,
            }
        }
        Err(libc::EINTR)
    }

    /// Sends a request and reads its response: up to DONE for a dump, else one message or error.
    pub fn ask(&mut self, request: Request, each: &mut dyn FnMut(Message)) -> Result<()> {
        self.sequence += 1;
        let sequence = self.sequence;
        kernel::write(self.fd.0, &request.finish(sequence))?;
        let mut is_interrupted = false;
        loop {
            let count = match kernel::read(self.fd.0, &mut self.datagram) {
                Err(libc::EINTR) => continue,
                other => other?,
            };
            for message in messages(&self.datagram[..count]) {
                let message = message?;
                if message.sequence != sequence {
                    continue;
                }
                is_interrupted |= message.flags & libc::NLM_F_DUMP_INTR != 0;
                match i32::from(message.kind) {
                    libc::NLMSG_DONE if is_interrupted => return Err(libc::EINTR),
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return error_of(message.body),
                    _ => each(message),
                }
                if message.flags & libc::NLM_F_MULTI == 0 {
                    return Ok(());
                }
            }
        }
    }

    /// Reads the queued notifications. ENOBUFS: some were lost.
    pub fn news(&mut self, each: &mut dyn FnMut(Message)) -> Result<()> {
        loop {
            let count = match kernel::receive(self.fd.0, &mut self.datagram, libc::MSG_DONTWAIT) {
                Err(libc::EAGAIN) => return Ok(()),
                Err(libc::EINTR) => continue,
                other => other?,
            };
            for message in messages(&self.datagram[..count]) {
                each(message?);
            }
        }
    }
}

fn error_of(body: &[u8]) -> Result<()> {
    match -(u32_at(body, 0) as i32) {
        0 => Ok(()),
        error => Err(error),
    }
}
