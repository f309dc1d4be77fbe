//! Options of sockets that an engine obeys. The kernel's socket behind each of ours checks and keeps
//! their values; here they become the engine's.

use bypass_shard::tcp::{Congestion, SocketOption};
use bypass_shm::layout::ASKABLE;
use bypass_sys::{kernel, numbers};

use crate::process;

/// Level and name, and what the value is for the engine; None: nothing.
type Row = (i32, i32, fn(u32) -> Option<SocketOption>);

/// Their places are what the program's side and the engine's say to each other.
const OPTIONS: &[Row] = &[
    (libc::SOL_SOCKET, libc::SO_KEEPALIVE, |on| {
        Some(SocketOption::KeepAlive(on != 0))
    }),
    (libc::SOL_TCP, libc::TCP_KEEPIDLE, |seconds| {
        Some(SocketOption::KeepIdle { seconds })
    }),
    (libc::SOL_TCP, libc::TCP_KEEPINTVL, |seconds| {
        Some(SocketOption::KeepInterval { seconds })
    }),
    (libc::SOL_TCP, libc::TCP_KEEPCNT, |count| {
        u8::try_from(count).ok().map(SocketOption::KeepCount)
    }),
    (libc::SOL_TCP, libc::TCP_USER_TIMEOUT, |milliseconds| {
        Some(SocketOption::UserTimeout { milliseconds })
    }),
    (libc::SOL_TCP, libc::TCP_SYNCNT, |count| {
        u8::try_from(count).ok().map(SocketOption::SynRetries)
    }),
    (libc::SOL_TCP, libc::TCP_LINGER2, |seconds| {
        let is_time = (1..=i32::MAX as u32).contains(&seconds);
        is_time.then_some(SocketOption::FinWait { seconds })
    }),
    // Of a socket without connection only: later it changes nothing, as in the kernel.
    (libc::SOL_TCP, libc::TCP_MAXSEG, |bytes| {
        Some(SocketOption::SegmentMax(bytes))
    }),
    (libc::SOL_TCP, libc::TCP_CONGESTION, |number| {
        let known = CONGESTION.get(number as usize)?;
        Some(SocketOption::CongestionControl(known.1))
    }),
    (libc::SOL_SOCKET, libc::SO_SNDBUF, |doubled| {
        let is_ours = process::settings().tcp.send_bytes.is_some();
        let bytes = doubled / 2;
        (!is_ours).then_some(SocketOption::SendBuffer { bytes })
    }),
    (libc::SOL_SOCKET, libc::SO_RCVBUF, |doubled| {
        let is_ours = process::settings().tcp.receive_bytes.is_some();
        let bytes = doubled / 2;
        (!is_ours).then_some(SocketOption::ReceiveBuffer { bytes })
    }),
    (libc::SOL_IP, libc::IP_TOS, |class| {
        Some(SocketOption::TrafficClass(class as u8))
    }),
    (libc::SOL_IPV6, libc::IPV6_TCLASS, |class| {
        Some(SocketOption::TrafficClass(class as u8))
    }),
    (libc::SOL_IP, libc::IP_TTL, |hops| {
        u8::try_from(hops).ok().map(SocketOption::Hops)
    }),
    (libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS, |hops| {
        u8::try_from(hops).ok().map(SocketOption::Hops)
    }),
];

const _: () = assert!(OPTIONS.len() <= ASKABLE);

/// The values of TCP_CONGESTION that an engine has.
const CONGESTION: &[(&str, Congestion)] =
    &[("cubic", Congestion::Cubic), ("reno", Congestion::NewReno)];
/// Room for a name of the kernel's, TCP_CA_NAME_MAX.
pub const NAME_BYTES: usize = 16;

/// The values of all options of a socket, by place; None where the kernel has no such option there.
type Values = [Option<u32>; OPTIONS.len()];

/// An option with its value, for the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// Its place.
    pub code: usize,
    /// See [`value_of`].
    pub value: u32,
}

/// The place of an option that an engine obeys.
pub fn code_of(level: i32, name: i32) -> Option<usize> {
    let is_it = |row: &Row| (row.0, row.1) == (level, name);
    OPTIONS.iter().position(is_it)
}

/// Every option that an engine obeys: level and name, by place.
pub fn all() -> impl Iterator<Item = (usize, (i32, i32))> {
    let names = OPTIONS.iter().map(|row| (row.0, row.1));
    names.enumerate()
}

/// The number of a congestion control that the engine has.
pub fn congestion(name: &[u8]) -> Option<u32> {
    let name = name.split(|byte| *byte == 0).next()?;
    let at = CONGESTION
        .iter()
        .position(|known| known.0.as_bytes() == name)?;
    Some(at as u32)
}

/// The value that the kernel's socket `fd` reports: a congestion control that no engine has is larger than all others.
pub fn value_of(fd: i32, (level, name): (i32, i32)) -> Option<u32> {
    if (level, name) == (libc::SOL_TCP, libc::TCP_CONGESTION) {
        let mut text = [0; NAME_BYTES];
        kernel::option(fd, level, name, &mut text).ok()?;
        return Some(congestion(&text).unwrap_or(u32::MAX));
    }
    kernel::option_int(fd, level, name)
        .ok()
        .map(|value| value as u32)
}

impl Wish {
    /// The option to set in the engine; None where it has nothing of the kind, or is not to obey.
    pub fn option(self) -> Option<SocketOption> {
        OPTIONS.get(self.code).and_then(|row| (row.2)(self.value))
    }

    /// Whether it names a congestion control that no engine has.
    pub fn is_unknown_congestion(self) -> bool {
        let is_congestion = OPTIONS
            .get(self.code)
            .is_some_and(|row| row.1 == libc::TCP_CONGESTION && row.0 == libc::SOL_TCP);
        is_congestion && self.value as usize >= CONGESTION.len()
    }
}

/// Options that the program has set on the listening socket `fd`: where it differs from a new one.
pub fn of_listener(fd: i32, is_ipv6: bool) -> Vec<Wish> {
    let Some(usual) = usual_values(is_ipv6) else {
        return Vec::new();
    };
    let own = values(fd).into_iter().zip(usual).enumerate();
    let differing = own.filter(|(_, (own, usual))| own != usual);
    let wish = |(code, (own, _)): (usize, (Option<u32>, _))| own.map(|value| Wish { code, value });
    differing.filter_map(wish).collect()
}

/// What a new socket of this host has.
pub fn of_new_socket() -> impl Iterator<Item = Wish> {
    let values = usual_values(false).into_iter().flatten().enumerate();
    values.filter_map(|(code, value)| value.map(|value| Wish { code, value }))
}

fn usual_values(is_ipv6: bool) -> Option<Values> {
    let family = if is_ipv6 {
        libc::AF_INET6
    } else {
        libc::AF_INET
    };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    let fresh = numbers::high(|| kernel::socket(family, kind, 0)).ok()?;
    Some(values(fresh.0))
}

/// The values that the socket `fd` reports for these options, a bit each.
pub fn usual(codes: u32, fd: i32) -> impl Iterator<Item = Wish> {
    let named = all().filter(move |(code, _)| codes & 1 << code != 0);
    named.filter_map(move |(code, option)| value_of(fd, option).map(|value| Wish { code, value }))
}

fn values(fd: i32) -> Values {
    core::array::from_fn(|at| value_of(fd, (OPTIONS[at].0, OPTIONS[at].1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_the_engines_in_its_units() {
        let made = |level, name, value| {
            let code = code_of(level, name).expect("known");
            Wish { code, value }.option()
        };
        let idle = made(libc::SOL_TCP, libc::TCP_KEEPIDLE, 7);
        assert_eq!(idle, Some(SocketOption::KeepIdle { seconds: 7 }));
        // The kernel says twice what it was given.
        let buffer = made(libc::SOL_SOCKET, libc::SO_RCVBUF, 16_384);
        assert_eq!(buffer, Some(SocketOption::ReceiveBuffer { bytes: 8_192 }));
        assert_eq!(code_of(libc::SOL_TCP, libc::TCP_NODELAY), None);
    }

    #[test]
    fn only_congestion_controls_of_the_engine_are_taken() {
        let reno = congestion(b"reno\0\0").expect("known");
        let code = code_of(libc::SOL_TCP, libc::TCP_CONGESTION).expect("known");
        let wish = Wish { code, value: reno };
        let wanted = SocketOption::CongestionControl(Congestion::NewReno);
        assert_eq!(wish.option(), Some(wanted));
        assert!(congestion(b"bbr").is_none() && congestion(b"renoX").is_none());
        let other = Wish {
            value: u32::MAX,
            ..wish
        };
        assert!(other.is_unknown_congestion() && other.option().is_none());
    }

    #[test]
    fn of_a_listener_counts_what_differs_from_a_new_socket() {
        let fd = kernel::socket(libc::AF_INET, libc::SOCK_STREAM, 0).expect("a socket") as i32;
        assert_eq!(of_listener(fd, false), []);
        kernel::set_option_int(fd, libc::SOL_TCP, libc::TCP_KEEPIDLE, 33).expect("set");
        kernel::set_option_int(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1).expect("set");
        let code = |level, name| code_of(level, name).expect("known");
        let wanted = [
            (code(libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1),
            (code(libc::SOL_TCP, libc::TCP_KEEPIDLE), 33),
        ];
        assert_eq!(
            of_listener(fd, false),
            wanted.map(|(code, value)| Wish { code, value })
        );
        let _ = kernel::close(fd);
    }
}
