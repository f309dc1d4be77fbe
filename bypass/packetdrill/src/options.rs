//! Socket options in Linux's numbers, and in the engine's.

use bypass_tcp::{Congestion, Info, OptionName, SocketOption};

/// `struct tcp_info` of Linux 7.2, which packetdrill reads as a whole; the engine fills its start.
const TCP_INFO_WORDS: usize = 70;
/// linux/sock_diag.h, SK_MEMINFO_VARS.
const MEMORY_WORDS: usize = 9;
/// SK_MEMINFO_RCVBUF.
const MEMORY_OF_RECEIVED: usize = 1;

/// The number at the start of a value; an option of IP may be a single byte, as in ip(7).
pub fn number(level: i32, value: &[u8]) -> Result<u32, i32> {
    let is_ip = [libc::SOL_IP, libc::SOL_IPV6].contains(&level);
    match (value.first_chunk(), value.first()) {
        (Some(four), _) => Ok(u32::from_ne_bytes(*four)),
        (None, Some(one)) if is_ip => Ok(u32::from(*one)),
        _ => Err(libc::EINVAL),
    }
}

/// The option of a setsockopt(2).
pub fn of_linux(level: i32, name: i32, value: &[u8]) -> Result<SocketOption, i32> {
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_CONGESTION) {
        return match value.split(|byte| *byte == 0).next() {
            Some(b"cubic") => Ok(SocketOption::CongestionControl(Congestion::Cubic)),
            Some(b"reno") => Ok(SocketOption::CongestionControl(Congestion::NewReno)),
            _ => Err(libc::ENOENT),
        };
    }
    let number = number(level, value)?;
    let is_on = number != 0;
    Ok(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => SocketOption::KeepAlive(is_on),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => SocketOption::UrgentInline(is_on),
        // Linux doubles the number, for its own accounting.
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => SocketOption::SendBuffer { bytes: number * 2 },
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => SocketOption::ReceiveBuffer { bytes: number },
        (libc::SOL_SOCKET, libc::SO_LINGER) => SocketOption::Linger {
            seconds: is_on
                .then(|| self::number(level, &value[4..]))
                .transpose()?,
        },
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => SocketOption::NoDelay(is_on),
        (libc::IPPROTO_TCP, libc::TCP_CORK) => SocketOption::Cork(is_on),
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => SocketOption::QuickAck(is_on),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => SocketOption::KeepIdle { seconds: number },
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => SocketOption::KeepInterval { seconds: number },
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => SocketOption::KeepCount(byte(number)?),
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => SocketOption::UserTimeout {
            milliseconds: number,
        },
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => SocketOption::SegmentMax(number),
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => SocketOption::FinWait { seconds: number },
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => SocketOption::SynRetries(byte(number)?),
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => SocketOption::DeferAccept(is_on),
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => SocketOption::UnsentLow { bytes: number },
        (libc::SOL_IP, libc::IP_TOS) | (libc::SOL_IPV6, libc::IPV6_TCLASS) => {
            SocketOption::TrafficClass(byte(number)?)
        }
        (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS) => {
            SocketOption::Hops(byte(number)?)
        }
        _ => return Err(libc::ENOPROTOOPT),
    })
}

fn byte(number: u32) -> Result<u8, i32> {
    u8::try_from(number).map_err(|_| libc::EINVAL)
}

/// The engine's name of an option for getsockopt(2).
pub fn name_of(level: i32, name: i32) -> Option<OptionName> {
    Some(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => OptionName::KeepAlive,
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => OptionName::UrgentInline,
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => OptionName::SendBuffer,
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => OptionName::ReceiveBuffer,
        (libc::SOL_SOCKET, libc::SO_LINGER) => OptionName::Linger,
        (libc::IPPROTO_TCP, libc::TCP_NODELAY) => OptionName::NoDelay,
        (libc::IPPROTO_TCP, libc::TCP_CORK) => OptionName::Cork,
        (libc::IPPROTO_TCP, libc::TCP_QUICKACK) => OptionName::QuickAck,
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE) => OptionName::KeepIdle,
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL) => OptionName::KeepInterval,
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT) => OptionName::KeepCount,
        (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT) => OptionName::UserTimeout,
        (libc::IPPROTO_TCP, libc::TCP_MAXSEG) => OptionName::SegmentMax,
        (libc::IPPROTO_TCP, libc::TCP_CONGESTION) => OptionName::CongestionControl,
        (libc::IPPROTO_TCP, libc::TCP_LINGER2) => OptionName::FinWait,
        (libc::IPPROTO_TCP, libc::TCP_SYNCNT) => OptionName::SynRetries,
        (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => OptionName::DeferAccept,
        (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT) => OptionName::UnsentLow,
        (libc::SOL_IP, libc::IP_TOS) | (libc::SOL_IPV6, libc::IPV6_TCLASS) => {
            OptionName::TrafficClass
        }
        (libc::SOL_IP, libc::IP_TTL) | (libc::SOL_IPV6, libc::IPV6_UNICAST_HOPS) => {
            OptionName::Hops
        }
        _ => return None,
    })
}

/// The bytes of an option's value.
pub fn to_linux(option: SocketOption) -> Vec<u8> {
    let number = match option {
        SocketOption::NoDelay(on)
        | SocketOption::Cork(on)
        | SocketOption::QuickAck(on)
        | SocketOption::KeepAlive(on)
        | SocketOption::UrgentInline(on)
        | SocketOption::DeferAccept(on) => u32::from(on),
        SocketOption::KeepIdle { seconds }
        | SocketOption::KeepInterval { seconds }
        | SocketOption::FinWait { seconds } => seconds,
        SocketOption::KeepCount(count) | SocketOption::SynRetries(count) => u32::from(count),
        SocketOption::TrafficClass(class) => u32::from(class),
        SocketOption::Hops(hops) => u32::from(hops),
        SocketOption::UserTimeout { milliseconds } => milliseconds,
        SocketOption::SegmentMax(bytes)
        | SocketOption::SendBuffer { bytes }
        | SocketOption::ReceiveBuffer { bytes }
        | SocketOption::UnsentLow { bytes } => bytes,
        SocketOption::Linger { seconds } => {
            let words = [u32::from(seconds.is_some()), seconds.unwrap_or(0)];
            return words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        }
        SocketOption::CongestionControl(which) => {
            let mut name = match which {
                Congestion::Cubic => b"cubic".to_vec(),
                Congestion::NewReno => b"reno".to_vec(),
            };
            name.resize(16, 0);
            return name;
        }
    };
    number.to_ne_bytes().to_vec()
}

/// `struct tcp_info` (linux/tcp.h).
pub fn tcp_info(info: Info) -> Vec<u8> {
    let mut words = info.linux_words().to_vec();
    words.resize(TCP_INFO_WORDS, 0);
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// The same for a socket without a connection: only its state.
pub fn tcp_info_of(state: u8) -> Vec<u8> {
    let mut bytes = vec![0; 4 * TCP_INFO_WORDS];
    bytes[0] = state;
    bytes
}

/// Further options that packetdrill reads with `struct tcp_info`, of a socket with this receive
/// buffer: Linux reports no congestion control details for CUBIC either, and of SO_MEMINFO the
/// engine knows only the limit of what is received, which Linux doubles.
pub fn of_kernel(level: i32, name: i32, receive: SocketOption) -> Option<Vec<u8>> {
    match (level, name, receive) {
        (libc::IPPROTO_TCP, libc::TCP_CC_INFO, _) => Some(Vec::new()),
        (libc::SOL_SOCKET, libc::SO_MEMINFO, SocketOption::ReceiveBuffer { bytes }) => {
            let mut words = [0; MEMORY_WORDS];
            words[MEMORY_OF_RECEIVED] = bytes * 2;
            Some(
                words
                    .iter()
                    .flat_map(|word: &u32| word.to_ne_bytes())
                    .collect(),
            )
        }
        _ => None,
    }
}
