//! Local ports for connections that we open: reserved with the kernel, so that neither it nor
//! another process uses them, and claimed, so that the answers come here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use bypass_sys::descriptor::Owned;
use bypass_sys::{address, kernel};
use bypass_xdp::{Steering, Transport};

/// Reserved ports that one address may have.
const PORTS_MAX: usize = 16_384;

/// The ports of a shard.
#[derive(Debug)]
pub struct Ports {
    steering: Arc<Steering>,
    reserved: HashMap<IpAddr, Vec<Reserved>>,
    /// Where the search begins, so that a port rests before it is used again.
    next: usize,
}

#[derive(Debug)]
struct Reserved {
    port: u16,
    /// Keeps the port from others; nothing ever comes here.
    _socket: Owned,
}

impl Ports {
    /// None yet.
    pub fn new(steering: Arc<Steering>) -> Self {
        Self {
            steering,
            reserved: HashMap::new(),
            next: 0,
        }
    }

    /// Finds a port of `ip` that `open` can use: one of those reserved earlier, else a new one.
    /// `open` answers None for a port that is taken.
    pub fn find<T>(
        &mut self,
        ip: IpAddr,
        mut open: impl FnMut(u16) -> Option<T>,
    ) -> kernel::Result<T> {
        let known = self.reserved.entry(ip).or_default();
        for step in 0..known.len() {
            let port = known[(self.next + step) % known.len()].port;
            if let Some(opened) = open(port) {
                self.next = self.next.wrapping_add(step + 1);
                return Ok(opened);
            }
        }
        if known.len() >= PORTS_MAX {
            return Err(libc::EADDRNOTAVAIL);
        }
        let (socket, port) = reserve(ip)?;
        self.steering.claim(Transport::Tcp, port);
        known.push(Reserved {
            port,
            _socket: socket,
        });
        open(port).ok_or(libc::EADDRNOTAVAIL)
    }
}

impl Drop for Ports {
    fn drop(&mut self) {
        for reserved in self.reserved.values().flatten() {
            self.steering.release(Transport::Tcp, reserved.port);
        }
    }
}

/// A kernel socket bound to a port that nobody uses.
fn reserve(ip: IpAddr) -> kernel::Result<(Owned, u16)> {
    let family = if ip.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let socket = kernel::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0)? as i32;
    let socket = Owned(kernel::move_high(socket)?);
    let mut name = [0; 28];
    let length = address::to_bytes((ip, 0).into(), family, &mut name);
    kernel::bind(socket.0, &name[..length])?;
    let name = kernel::socket_name(socket.0)?;
    let bound = address::from_bytes(&name.bytes[..name.length as usize]).ok_or(libc::EINVAL)?;
    Ok((socket, bound.port()))
}
