//! Options of TCP sockets that a user may set (socket(7), ip(7), tcp(7)).

use super::check;
use super::socket::Fd;
use std::io;
use std::mem::size_of;
use std::ops::RangeInclusive;

/// Source ports, the first and the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// First.
    pub first: u16,
    /// Last.
    pub last: u16,
}

impl Ports {
    /// How many there are.
    pub fn count(self) -> usize {
        usize::from(self.last - self.first) + 1
    }

    /// Those of thread `number` out of `threads`, which have no port in common. There must be one for each.
    pub fn of_thread(self, number: usize, threads: usize) -> Ports {
        let before = |number| (self.count() * number / threads) as u16;
        Ports {
            first: self.first + before(number),
            last: self.first + (before(number + 1) - 1),
        }
    }
}

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
    /// The source port is one of these (IP_LOCAL_PORT_RANGE, Linux 6.3).
    pub ports: Option<Ports>,
}

/// The ports that the kernel chooses from (ip(7)); all, where it does not say.
pub fn own_ports() -> RangeInclusive<u16> {
    let read = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let own = read.ok().and_then(|text| {
        let mut ends = text.split_whitespace().map(str::parse::<u16>);
        Some(ends.next()?.ok()?..=ends.next()?.ok()?)
    });
    own.unwrap_or(0..=u16::MAX)
}

/// IP_LOCAL_PORT_RANGE of linux/in.h.
const LOCAL_PORT_RANGE: libc::c_int = 51;

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
        if let Some(Ports { first, last }) = self.ports {
            let both = u32::from(last) << 16 | u32::from(first);
            let set = set_number(fd, libc::IPPROTO_IP, LOCAL_PORT_RANGE, both as libc::c_int);
            named("source-ports", set.map_err(since_linux_6_3))?;
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

/// Names the version that knows an option which this kernel does not.
fn since_linux_6_3(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOPROTOOPT) => {
            let text = "this kernel cannot (Linux 6.3 or newer)";
            io::Error::new(io::ErrorKind::Unsupported, text)
        }
        _ => error,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_names_the_version_only_where_the_kernel_lacks_port_ranges() {
        let said = |number| since_linux_6_3(io::Error::from_raw_os_error(number)).to_string();
        assert_eq!(
            said(libc::ENOPROTOOPT),
            "this kernel cannot (Linux 6.3 or newer)"
        );
        let other = io::Error::from_raw_os_error(libc::EINVAL);
        assert_eq!(said(libc::EINVAL), other.to_string());
    }

    #[test]
    fn threads_share_the_ports_without_gap_or_overlap() {
        let all = Ports {
            first: 40_000,
            last: 40_006,
        };
        let parts: Vec<_> = (0..3).map(|number| all.of_thread(number, 3)).collect();
        let ends: Vec<_> = parts.iter().map(|part| (part.first, part.last)).collect();
        assert_eq!(ends, [(40_000, 40_001), (40_002, 40_003), (40_004, 40_006)]);
        let whole = Ports {
            first: 1,
            last: u16::MAX,
        };
        assert_eq!(whole.of_thread(0, 1), whole);
    }
}
