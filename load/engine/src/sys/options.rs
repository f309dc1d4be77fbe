//! Options of TCP sockets that a user may set (socket(7), ip(7), tcp(7)).

use super::check;
use super::socket::Fd;
use std::io;
use std::mem::size_of;

/// What is set before a socket connects; nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// Congestion control, such as `bbr` (TCP_CONGESTION).
    pub congestion_control: Option<String>,
    /// Largest segment, bytes (TCP_MAXSEG).
    pub segment_bytes: Option<u16>,
    /// Send and receive buffers, bytes; the kernel doubles them (SO_SNDBUF, SO_RCVBUF).
    pub send_buffer_bytes: Option<u32>,
    /// As for sending.
    pub receive_buffer_bytes: Option<u32>,
    /// The first request goes out with the SYN, where the server lets it (TCP_FASTOPEN_CONNECT).
    pub fast_open: bool,
    /// Class of traffic, 0 to 63 (the upper six bits of IP_TOS or IPV6_TCLASS; RFC 2474).
    pub dscp: Option<u8>,
    /// Interface that packets leave by (SO_BINDTODEVICE).
    pub device: Option<String>,
}

impl SocketOptions {
    /// Sets them on a socket that is not connected yet; an error names the option.
    pub fn set(&self, fd: Fd, is_ipv6: bool) -> io::Result<()> {
        let tcp = libc::IPPROTO_TCP;
        if let Some(name) = &self.congestion_control {
            named(
                "tcp-congestion",
                set_text(fd, tcp, libc::TCP_CONGESTION, name),
            )?;
        }
        if let Some(bytes) = self.segment_bytes {
            named(
                "tcp-mss",
                set_number(fd, tcp, libc::TCP_MAXSEG, bytes.into()),
            )?;
        }
        let buffers = [
            ("send-buffer", libc::SO_SNDBUF, self.send_buffer_bytes),
            ("receive-buffer", libc::SO_RCVBUF, self.receive_buffer_bytes),
        ];
        for (option, name, bytes) in buffers {
            if let Some(bytes) = bytes {
                let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
                named(option, set_number(fd, libc::SOL_SOCKET, name, bytes))?;
            }
        }
        if self.fast_open {
            named(
                "tcp-fast-open",
                set_number(fd, tcp, libc::TCP_FASTOPEN_CONNECT, 1),
            )?;
        }
        if let Some(class) = self.dscp {
            let (level, name) = if is_ipv6 {
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)
            } else {
                (libc::IPPROTO_IP, libc::IP_TOS)
            };
            named(
                "dscp",
                set_number(fd, level, name, libc::c_int::from(class) << 2),
            )?;
        }
        if let Some(device) = &self.device {
            named(
                "device",
                set_text(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device),
            )?;
        }
        Ok(())
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == SocketOptions::default()
    }
}

fn named(option: &str, result: io::Result<()>) -> io::Result<()> {
    result.map_err(|error| io::Error::new(error.kind(), format!("--{option}: {error}")))
}

fn set_number(fd: Fd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let pointer: *const libc::c_int = &value;
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is an int and the pointer is valid for it.
    check(unsafe { libc::setsockopt(fd, level, name, pointer.cast(), size) }).map(drop)
}

fn set_text(fd: Fd, level: libc::c_int, name: libc::c_int, value: &str) -> io::Result<()> {
    let (pointer, size) = (value.as_ptr(), value.len() as libc::socklen_t);
    // SAFETY: the option is a text of this length, and the pointer is valid for it.
    check(unsafe { libc::setsockopt(fd, level, name, pointer.cast(), size) }).map(drop)
}
