//! Numbers that an attacker must not guess: initial sequence numbers (RFC 6528), timestamp offsets
//! (RFC 7323, 7.1) and SYN cookies (RFC 4987, 3.6).

use crate::hash::Key;
use crate::wire::tcp::{Flow, Options};

/// Sizes that a cookie can distinguish; three bits choose one.
const MSS: [u16; 8] = [216, 536, 1_180, 1_220, 1_300, 1_440, 1_460, 8_940];
/// A cookie is good in the minute in which it was made and in the next.
const COOKIE_MINUTES: u32 = 2;
const MINUTE_US: u64 = 60_000_000;
const FLOW_LABEL_MAX: u32 = 0xf_ffff;
const LOW_24: u32 = 0xff_ffff;
/// Bits of a timestamp that carry the options of a SYN: window scale, SACK, ECN.
const OPTION_BITS: u32 = 0x3f;
const NO_SCALE: u32 = 0xf;
const SACK_BIT: u32 = 0x10;
const ECN_BIT: u32 = 0x20;

/// What a cookie keeps of a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Maximum segment size, rounded down.
    pub mss: u16,
    /// Shift of the peer's windows.
    pub window_scale: Option<u8>,
    /// SACK was offered.
    pub has_sack: bool,
    /// ECN was asked for.
    pub has_ecn: bool,
}

/// The secrets of an engine.
pub struct Numbers {
    sequence: Key,
    timestamps: Key,
    cookies: Key,
    labels: Key,
}

impl Numbers {
    /// Secrets from the engine's secret.
    pub fn new(secret: &[u8; 16]) -> Numbers {
        Numbers {
            sequence: Key::new(secret, 1),
            timestamps: Key::new(secret, 2),
            cookies: Key::new(secret, 3),
            labels: Key::new(secret, 9),
        }
    }

    /// RFC 6528: a clock plus a hash of the flow. The clock is as fast as Linux's, 16 ticks a microsecond rather
    /// than one in four: later than the numbers of the flow's last connection, also when that was short.
    pub fn initial_sequence(&self, flow: &Flow, now_us: u64) -> u32 {
        (self.sequence.hash(&words(flow)) as u32).wrapping_add(now_us.wrapping_mul(16) as u32)
    }

    /// What is added to the clock for this flow's timestamps; the same for each of its connections,
    /// so that the other side's PAWS and TIME_WAIT work (RFC 6191).
    pub fn timestamp_offset(&self, flow: &Flow) -> u32 {
        self.timestamps.hash(&words(flow)) as u32
    }

    /// The flow label of IPv6, by which routers with several ways choose one: the same for all packets of a flow
    /// (RFC 6437, 3).
    pub fn flow_label(&self, flow: &Flow) -> u32 {
        match flow.remote.is_v4() {
            true => 0,
            false => self.labels.hash(&words(flow)) as u32 & FLOW_LABEL_MAX,
        }
    }

    /// The sequence number of a SYN/ACK that keeps no state.
    pub fn cookie(&self, flow: &Flow, irs: u32, mss: u16, now_us: u64) -> u32 {
        let minute = (now_us / MINUTE_US) as u32;
        let choice = MSS.iter().rposition(|known| *known <= mss).unwrap_or(0) as u32;
        let data = (self.of_minute(flow, minute) as u32).wrapping_add(choice) & LOW_24;
        self.base(flow, irs)
            .wrapping_add(minute << 24)
            .wrapping_add(data)
    }

    /// The MSS that a cookie keeps, when it is one of ours and not old.
    pub fn check_cookie(&self, flow: &Flow, irs: u32, cookie: u32, now_us: u64) -> Option<u16> {
        let minute = (now_us / MINUTE_US) as u32;
        let rest = cookie.wrapping_sub(self.base(flow, irs));
        let age = minute.wrapping_sub(rest >> 24) & 0xff;
        if age >= COOKIE_MINUTES {
            return None;
        }
        let made = self.of_minute(flow, minute.wrapping_sub(age)) as u32;
        MSS.get((rest.wrapping_sub(made) & LOW_24) as usize)
            .copied()
    }

    fn base(&self, flow: &Flow, irs: u32) -> u32 {
        let [a, b, c, d, e] = words(flow);
        self.cookies
            .hash(&[a, b, c, d, e, u64::from(irs) | 1 << 63]) as u32
    }

    fn of_minute(&self, flow: &Flow, minute: u32) -> u64 {
        let [a, b, c, d, e] = words(flow);
        self.cookies.hash(&[a, b, c, d, e, u64::from(minute)])
    }
}

fn words(flow: &Flow) -> [u64; 5] {
    let Flow {
        local,
        remote,
        ports,
    } = flow;
    [
        local.high,
        local.low,
        remote.high,
        remote.low,
        u64::from(*ports),
    ]
}

/// A clock value at or shortly before `clock_ms` whose lowest bits keep the options of a SYN.
pub fn options_into_clock(clock_ms: u32, kept: &Kept) -> u32 {
    let scale = kept
        .window_scale
        .map_or(NO_SCALE, |shift| u32::from(shift.min(14)));
    let bits =
        scale | if kept.has_sack { SACK_BIT } else { 0 } | if kept.has_ecn { ECN_BIT } else { 0 };
    let value = clock_ms & !OPTION_BITS | bits;
    if value > clock_ms {
        value.wrapping_sub(OPTION_BITS + 1)
    } else {
        value
    }
}

/// The options that an echoed clock value keeps.
pub fn options_from_clock(clock_ms: u32) -> Kept {
    let scale = clock_ms & 0xf;
    Kept {
        mss: 0,
        window_scale: (scale != NO_SCALE).then_some(scale as u8),
        has_sack: clock_ms & SACK_BIT != 0,
        has_ecn: clock_ms & ECN_BIT != 0,
    }
}

impl Kept {
    /// What a SYN offers.
    pub fn from_syn(options: &Options, default_mss: u16, asks_ecn: bool) -> Kept {
        Kept {
            mss: options.mss.unwrap_or(default_mss),
            window_scale: options.window_scale,
            has_sack: options.sack_permitted,
            has_ecn: asks_ecn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ip::Addr;

    const FLOW: Flow = Flow {
        local: Addr::v4(1),
        remote: Addr::v4(2),
        ports: 0x50_1234,
    };

    /// RFC 6528, 3: the numbers of one flow grow with the clock; those of another are elsewhere.
    #[test]
    fn initial_numbers_grow_with_the_clock_and_differ_between_flows() {
        let numbers = Numbers::new(&[7; 16]);
        let first = numbers.initial_sequence(&FLOW, 1_000);
        assert_eq!(
            numbers.initial_sequence(&FLOW, 5_000),
            first.wrapping_add(64_000)
        );
        let other = Flow {
            ports: 0x50_1235,
            ..FLOW
        };
        assert_ne!(numbers.initial_sequence(&other, 1_000), first);
        assert_ne!(Numbers::new(&[8; 16]).initial_sequence(&FLOW, 1_000), first);
    }

    #[test]
    fn a_cookie_keeps_the_mss_for_two_minutes_and_no_other_number_passes() {
        let numbers = Numbers::new(&[7; 16]);
        let now_us = 100 * MINUTE_US;
        let cookie = numbers.cookie(&FLOW, 77, 1_452, now_us);
        assert_eq!(numbers.check_cookie(&FLOW, 77, cookie, now_us), Some(1_440));
        assert_eq!(
            numbers.check_cookie(&FLOW, 77, cookie, now_us + MINUTE_US),
            Some(1_440)
        );
        assert_eq!(
            numbers.check_cookie(&FLOW, 77, cookie, now_us + 2 * MINUTE_US),
            None
        );
        assert_eq!(numbers.check_cookie(&FLOW, 78, cookie, now_us), None);
        let guessed = (0..100_000u32)
            .filter(|guess| {
                numbers
                    .check_cookie(&FLOW, 77, guess.wrapping_mul(2_654_435_761), now_us)
                    .is_some()
            })
            .count();
        assert!(guessed <= 3, "{guessed} of 100,000 guesses passed");
    }

    #[test]
    fn options_survive_in_a_clock_that_never_runs_ahead() {
        for clock in [64u32, 1_000, 123_456_789] {
            let kept = Kept {
                mss: 0,
                window_scale: Some(7),
                has_sack: true,
                has_ecn: false,
            };
            let value = options_into_clock(clock, &kept);
            assert!(value <= clock && clock - value < 64);
            assert_eq!(options_from_clock(value), kept);
        }
    }
}
