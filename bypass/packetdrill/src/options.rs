//! Socket options as Linux numbers them, and the engine's.

use bypass_tcp::{Congestion, Info, OptionName, Phase, SocketOption, State};

/// What setsockopt(2) asks; None for what has no effect here.
pub fn of_linux(level: i32, name: i32, value: &[u8]) -> Result<Option<SocketOption>, i32> {
    if (level, name) == (libc::IPPROTO_TCP, libc::TCP_CONGESTION) {
        return match value.split(|byte| *byte == 0).next() {
            Some(b"cubic") => Ok(Some(SocketOption::CongestionControl(Congestion::Cubic))),
            Some(b"reno") => Ok(Some(SocketOption::CongestionControl(Congestion::NewReno))),
            _ => Err(libc::ENOENT),
        };
    }
    let word = |at: usize| -> Result<u32, i32> {
        let four = value.get(at..at + 4).ok_or(libc::EINVAL)?;
        Ok(u32::from_ne_bytes(
            four.try_into().map_err(|_| libc::EINVAL)?,
        ))
    };
    let number = word(0)?;
    let is_on = number != 0;
    Ok(Some(match (level, name) {
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE) => SocketOption::KeepAlive(is_on),
        (libc::SOL_SOCKET, libc::SO_OOBINLINE) => SocketOption::UrgentInline(is_on),
        // Linux takes twice the number, for its own accounting.
        (libc::SOL_SOCKET, libc::SO_SNDBUF) => SocketOption::SendBuffer { bytes: number * 2 },
        (libc::SOL_SOCKET, libc::SO_RCVBUF) => SocketOption::ReceiveBuffer { bytes: number },
        (libc::SOL_SOCKET, libc::SO_LINGER) => SocketOption::Linger {
            seconds: is_on.then(|| word(4)).transpose()?,
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
        (libc::SOL_SOCKET, libc::SO_REUSEADDR | libc::SO_REUSEPORT | libc::SO_PRIORITY) => {
            return Ok(None)
        }
        _ => return Err(libc::ENOPROTOOPT),
    }))
}

fn byte(number: u32) -> Result<u8, i32> {
    u8::try_from(number).map_err(|_| libc::EINVAL)
}

/// The engine's name of what getsockopt(2) asks.
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

/// `struct tcp_info` (linux/tcp.h), as far as the engine knows its fields; the rest is 0.
pub fn tcp_info(info: &Info) -> Vec<u8> {
    const LENGTH: usize = 232;
    let mut bytes = vec![0; LENGTH];
    let linux_state = match info.state {
        State::Established => 1,
        State::SynSent => 2,
        State::SynReceived => 3,
        State::FinWait1 => 4,
        State::FinWait2 => 5,
        State::TimeWait => 6,
        State::Closed => 7,
        State::CloseWait => 8,
        State::LastAck => 9,
        State::Closing => 11,
    };
    let phase = match info.phase {
        Phase::Open => 0,
        Phase::Disorder => 1,
        Phase::Reduced => 2,
        Phase::Recovery => 3,
        Phase::Loss => 4,
    };
    let (has_timestamps, has_sack, has_ecn) = info.has;
    let has_scales = info.scales != (0, 0);
    let options = u8::from(has_timestamps)
        | u8::from(has_sack) << 1
        | u8::from(has_scales) << 2
        | u8::from(has_ecn) << 3;
    let scales = info.scales.0 | info.scales.1 << 4;
    bytes[..7].copy_from_slice(&[
        linux_state,
        phase,
        info.timeouts,
        info.probes,
        info.timeouts,
        options,
        scales,
    ]);
    let rtt_min = if info.min_rtt_us == u32::MAX {
        0
    } else {
        info.min_rtt_us
    };
    let ssthresh = info.ssthresh.min(i32::MAX as u32);
    for (at, value) in [
        (8, u32::try_from(info.rto_us).unwrap_or(u32::MAX)),
        (16, info.mss),
        (20, info.rcv_mss),
        (24, info.unacked),
        (28, info.sacked),
        (32, info.lost),
        (36, info.retrans),
        (60, info.path_mtu),
        (64, info.rcv_wnd),
        (68, info.rtt_us),
        (72, info.rttvar_us),
        (76, ssthresh),
        (80, info.cwnd),
        (84, info.mss),
        (88, 3),
        (100, info.totals.retransmitted),
        (148, rtt_min),
        (192, info.totals.delivered),
    ] {
        bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    for (at, value) in [
        (120, info.totals.bytes_acked),
        (128, info.totals.bytes_received),
    ] {
        bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}
