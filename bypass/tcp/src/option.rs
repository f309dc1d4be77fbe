//! Options of a socket, as `setsockopt` knows them.

use crate::config::{Config, Congestion};
use crate::error::Error;

/// Least and largest buffers that an option can ask for.
const BUFFER_MIN: u32 = 2_048;
const BUFFER_MAX: u32 = 8 << 20;
/// The size of segments before a peer has said its own (RFC 9293, 3.7.1), as Linux reports it.
const SEGMENT_BYTES: u32 = 536;

/// One option with its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SocketOption {
    /// TCP_NODELAY.
    NoDelay(bool),
    /// TCP_CORK.
    Cork(bool),
    /// TCP_QUICKACK.
    QuickAck(bool),
    /// SO_KEEPALIVE.
    KeepAlive(bool),
    /// TCP_KEEPIDLE.
    KeepIdle {
        /// Seconds.
        seconds: u32,
    },
    /// TCP_KEEPINTVL.
    KeepInterval {
        /// Seconds.
        seconds: u32,
    },
    /// TCP_KEEPCNT.
    KeepCount(u8),
    /// TCP_USER_TIMEOUT; zero for none.
    UserTimeout {
        /// Milliseconds.
        milliseconds: u32,
    },
    /// TCP_MAXSEG; zero for no limit of ours.
    SegmentMax(u32),
    /// SO_SNDBUF: a fixed limit, no autotuning.
    SendBuffer {
        /// Bytes.
        bytes: u32,
    },
    /// SO_RCVBUF: a fixed limit, no autotuning.
    ReceiveBuffer {
        /// Bytes.
        bytes: u32,
    },
    /// SO_LINGER: `Some(0)` makes close a reset; waiting is the caller's.
    Linger {
        /// Seconds.
        seconds: Option<u32>,
    },
    /// SO_OOBINLINE.
    UrgentInline(bool),
    /// TCP_CONGESTION.
    CongestionControl(Congestion),
    /// TCP_LINGER2: how long FIN_WAIT_2 lasts after close.
    FinWait {
        /// Seconds.
        seconds: u32,
    },
    /// TCP_SYNCNT.
    SynRetries(u8),
    /// TCP_DEFER_ACCEPT of a listener: a connection without data is not accepted.
    DeferAccept(bool),
    /// TCP_NOTSENT_LOWAT: writable only with fewer unsent bytes; zero for no limit.
    UnsentLow {
        /// Bytes.
        bytes: u32,
    },
    /// IP_TOS or IPV6_TCLASS; the ECN bits are the engine's.
    TrafficClass(u8),
    /// IP_TTL or IPV6_UNICAST_HOPS; zero for the engine's.
    Hops(u8),
}

/// The name of an option, for [`crate::Engine::getopt`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // the same names as in SocketOption
pub enum OptionName {
    NoDelay,
    Cork,
    QuickAck,
    KeepAlive,
    KeepIdle,
    KeepInterval,
    KeepCount,
    UserTimeout,
    SegmentMax,
    SendBuffer,
    ReceiveBuffer,
    Linger,
    UrgentInline,
    CongestionControl,
    FinWait,
    SynRetries,
    DeferAccept,
    UnsentLow,
    TrafficClass,
    Hops,
}

/// The options of one socket, also of one that is not yet open.
#[derive(Clone, Copy, Default, Debug)]
pub struct Settings {
    /// TCP_NODELAY.
    pub no_delay: bool,
    /// TCP_CORK.
    pub cork: bool,
    /// SO_KEEPALIVE.
    pub keepalive: bool,
    /// SO_OOBINLINE.
    pub urgent_inline: bool,
    /// TCP_DEFER_ACCEPT.
    pub defer_accept: bool,
    /// SO_SNDBUF was set.
    pub has_fixed_send: bool,
    /// SO_RCVBUF was set.
    pub has_fixed_receive: bool,
    /// TCP_KEEPCNT; zero for the engine's.
    pub keepalive_probes: u8,
    /// TCP_SYNCNT; zero for the engine's.
    pub syn_retries: u8,
    /// IP_TOS.
    pub traffic_class: u8,
    /// IP_TTL; zero for the engine's.
    pub hops: u8,
    /// TCP_CONGESTION; none for the engine's.
    pub congestion: Option<Congestion>,
    /// SO_LINGER.
    pub linger_s: Option<u32>,
    /// TCP_KEEPIDLE; zero for the engine's.
    pub keepalive_idle_us: u64,
    /// TCP_KEEPINTVL; zero for the engine's.
    pub keepalive_interval_us: u64,
    /// TCP_USER_TIMEOUT; zero for none.
    pub user_timeout_us: u64,
    /// TCP_LINGER2; zero for the engine's.
    pub fin_wait_us: u64,
    /// TCP_MAXSEG.
    pub segment_max: u32,
    /// SO_SNDBUF, when set.
    pub send_bytes: u32,
    /// SO_RCVBUF, when set.
    pub receive_bytes: u32,
    /// TCP_NOTSENT_LOWAT.
    pub unsent_low: u32,
}

impl Settings {
    /// The shift of our windows, said in the first segment: what the buffer may grow to must be sayable.
    pub(crate) fn receive_scale(&self, config: &Config) -> u8 {
        window_scale(match self.has_fixed_receive {
            true => self.receive_bytes,
            false => config.receive_bytes_max,
        })
    }

    /// The hop limit, where the engine's is `usual`.
    pub(crate) fn hops_or(&self, usual: u8) -> u8 {
        match self.hops {
            0 => usual,
            hops => hops,
        }
    }

    /// Takes an option in.
    pub fn set(&mut self, option: SocketOption) -> Result<(), Error> {
        let seconds_us = |seconds: u32| u64::from(seconds) * 1_000_000;
        match option {
            SocketOption::NoDelay(on) => self.no_delay = on,
            SocketOption::Cork(on) => self.cork = on,
            SocketOption::QuickAck(_) => {}
            SocketOption::KeepAlive(on) => self.keepalive = on,
            SocketOption::KeepIdle { seconds: 0 } | SocketOption::KeepInterval { seconds: 0 } => {
                return Err(Error::InvalidArgument);
            }
            SocketOption::KeepIdle { seconds } => self.keepalive_idle_us = seconds_us(seconds),
            SocketOption::KeepInterval { seconds } => {
                self.keepalive_interval_us = seconds_us(seconds)
            }
            SocketOption::KeepCount(0) | SocketOption::SynRetries(0) => {
                return Err(Error::InvalidArgument)
            }
            SocketOption::KeepCount(count) => self.keepalive_probes = count,
            SocketOption::UserTimeout { milliseconds } => {
                self.user_timeout_us = u64::from(milliseconds) * 1_000;
            }
            SocketOption::SegmentMax(0) => self.segment_max = 0,
            SocketOption::SegmentMax(bytes) if !(88..=32_767).contains(&bytes) => {
                return Err(Error::InvalidArgument);
            }
            SocketOption::SegmentMax(bytes) => self.segment_max = bytes,
            SocketOption::SendBuffer { bytes } => {
                self.has_fixed_send = true;
                self.send_bytes = bytes.clamp(BUFFER_MIN, BUFFER_MAX);
            }
            SocketOption::ReceiveBuffer { bytes } => {
                self.has_fixed_receive = true;
                self.receive_bytes = bytes.clamp(BUFFER_MIN, BUFFER_MAX);
            }
            SocketOption::Linger { seconds } => self.linger_s = seconds,
            SocketOption::UrgentInline(on) => self.urgent_inline = on,
            SocketOption::CongestionControl(algorithm) => self.congestion = Some(algorithm),
            SocketOption::FinWait { seconds } => self.fin_wait_us = seconds_us(seconds),
            SocketOption::SynRetries(count) => self.syn_retries = count,
            SocketOption::DeferAccept(on) => self.defer_accept = on,
            SocketOption::UnsentLow { bytes } => self.unsent_low = bytes,
            SocketOption::TrafficClass(class) => self.traffic_class = class & !3,
            SocketOption::Hops(hops) => self.hops = hops,
        }
        Ok(())
    }

    /// Reads an option of a socket that is not open, or listens.
    pub fn get_unopened(&self, name: OptionName, config: &Config) -> SocketOption {
        let own = |own: u32, common: u32| if own > 0 { own } else { common };
        let send = own(self.send_bytes, config.send_bytes);
        let receive = own(self.receive_bytes, config.receive_bytes);
        let segment = own(self.segment_max, SEGMENT_BYTES);
        self.get(name, (send, receive), segment, config)
    }

    /// Reads an option of a connection, whose buffers and segments have sizes of their own.
    pub fn get(
        &self,
        name: OptionName,
        (send, receive): (u32, u32),
        mss: u32,
        config: &Config,
    ) -> SocketOption {
        let or = |own: u64, common: u64| (if own > 0 { own } else { common } / 1_000_000) as u32;
        let count = |own: u8, common: u8| if own > 0 { own } else { common };
        match name {
            OptionName::NoDelay => SocketOption::NoDelay(self.no_delay),
            OptionName::Cork => SocketOption::Cork(self.cork),
            OptionName::QuickAck => SocketOption::QuickAck(true),
            OptionName::KeepAlive => SocketOption::KeepAlive(self.keepalive),
            OptionName::KeepIdle => SocketOption::KeepIdle {
                seconds: or(self.keepalive_idle_us, config.keepalive_idle_us),
            },
            OptionName::KeepInterval => SocketOption::KeepInterval {
                seconds: or(self.keepalive_interval_us, config.keepalive_interval_us),
            },
            OptionName::KeepCount => {
                SocketOption::KeepCount(count(self.keepalive_probes, config.keepalive_probes))
            }
            OptionName::UserTimeout => SocketOption::UserTimeout {
                milliseconds: (self.user_timeout_us / 1_000) as u32,
            },
            OptionName::SegmentMax => SocketOption::SegmentMax(mss),
            OptionName::SendBuffer => SocketOption::SendBuffer { bytes: send },
            OptionName::ReceiveBuffer => SocketOption::ReceiveBuffer { bytes: receive },
            OptionName::Linger => SocketOption::Linger {
                seconds: self.linger_s,
            },
            OptionName::UrgentInline => SocketOption::UrgentInline(self.urgent_inline),
            OptionName::CongestionControl => {
                SocketOption::CongestionControl(self.congestion.unwrap_or(config.congestion))
            }
            OptionName::FinWait => SocketOption::FinWait {
                seconds: or(self.fin_wait_us, config.fin_wait_us),
            },
            OptionName::SynRetries => {
                SocketOption::SynRetries(count(self.syn_retries, config.syn_retries))
            }
            OptionName::DeferAccept => SocketOption::DeferAccept(self.defer_accept),
            OptionName::UnsentLow => SocketOption::UnsentLow {
                bytes: self.unsent_low,
            },
            OptionName::TrafficClass => SocketOption::TrafficClass(self.traffic_class),
            OptionName::Hops => SocketOption::Hops(count(self.hops, config.hops)),
        }
    }
}

/// Shift of our receive windows: 3 MiB in 16 bits (as Linux with its default limits).
fn window_scale(receive_bytes_max: u32) -> u8 {
    (0..14)
        .find(|shift| receive_bytes_max >> shift <= 0xffff)
        .unwrap_or(14)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_mebibytes_need_a_shift_of_six() {
        assert_eq!(window_scale(3 << 20), 6);
        assert_eq!(window_scale(0xffff), 0);
    }
}
