//! Policy rules (`ip rule`), as far as they apply to TCP packets of this host's sockets.

use std::net::IpAddr;

use crate::item::{ip, unspecified};
use crate::message::{attributes, u32_at};

// linux/fib_rules.h.
const DST: u16 = 1;
const SRC: u16 = 2;
const IIF: u16 = 3;
const PRIORITY: u16 = 6;
const MARK: u16 = 10;
const TUNNEL: u16 = 12;
const SUPPRESS_GROUP: u16 = 13;
const SUPPRESS_PREFIX: u16 = 14;
const TABLE: u16 = 15;
const MASK: u16 = 16;
const OIF: u16 = 17;
const L3MDEV: u16 = 19;
const USERS: u16 = 20;
const PROTOCOL: u16 = 22;
const SOURCE_PORTS: u16 = 23;
const PORTS: u16 = 24;
/// The last attribute that is understood, or changes nothing.
const LAST: u16 = PORTS;
const UDP: u8 = libc::IPPROTO_UDP as u8;
const INVERT: u32 = 2;
const TO_TABLE: u8 = 1;
const NOTHING: u8 = 3;
const BLACKHOLE: u8 = 6;
const PROHIBIT: u8 = 8;

/// Whether a rule applies to a packet of an unmarked TCP socket that is not bound to an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Applies {
    /// Never: it is for forwarded, marked or tunnelled packets, or for another protocol.
    Never,
    /// It depends on properties that are unknown here: a user, a port, a traffic class.
    Perhaps,
    /// If its prefixes match.
    Always,
}

/// The effect of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Looks the destination up in a table.
    Table(u32),
    /// Drops or refuses the packet.
    Refuse,
    /// Nothing.
    Nothing,
    /// Unknown: a jump, or a new action.
    Unknown,
}

/// A policy rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The kernel evaluates the lowest first.
    pub priority: u32,
    /// Prefix of the packet's source; its address is unspecified, and its length 0, if it matches
    /// all.
    pub source: (IpAddr, u8),
    /// Prefix of the destination.
    pub destination: (IpAddr, u8),
    /// See [`Action`].
    pub action: Action,
    /// Routes with a prefix of at most so many bits do not count.
    pub suppressed: Option<u32>,
    /// See [`Applies`].
    pub applies: Applies,
    /// It is for UDP alone, of which [`Applies`] does not speak.
    pub is_of_datagrams: bool,
}

impl Rule {
    /// The rules of a family in every new network namespace: local, main, default.
    pub(crate) fn usual(any: IpAddr) -> impl Iterator<Item = Self> {
        let tables = [(0, 255), (32_766, 254), (32_767, 253)];
        tables.into_iter().map(move |(priority, table)| Self {
            priority,
            source: (any, 0),
            destination: (any, 0),
            action: Action::Table(table),
            suppressed: None,
            applies: Applies::Always,
            is_of_datagrams: false,
        })
    }

    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let fixed = body.get(..12)?;
        let any = unspecified(fixed[0])?;
        let mut table = u32::from(fixed[4]);
        let mut rule = Self {
            priority: 0,
            source: (any, fixed[2]),
            destination: (any, fixed[1]),
            action: Action::Unknown,
            suppressed: None,
            applies: Applies::Always,
            is_of_datagrams: false,
        };
        let (mut mark, mut mask) = (0, None);
        let mut at_most = Applies::Always;
        if fixed[3] != 0 || u32_at(fixed, 8) & INVERT != 0 {
            at_most = Applies::Perhaps;
        }
        for (kind, value) in attributes(body.get(12..)?) {
            let number = u32_at(value, 0);
            let bound = match kind {
                DST => {
                    rule.destination.0 = ip(value)?;
                    Applies::Always
                }
                SRC => {
                    rule.source.0 = ip(value)?;
                    Applies::Always
                }
                // This host's own packets come from there.
                IIF if value.starts_with(b"lo\0") => Applies::Always,
                IIF | OIF | TUNNEL => Applies::Never,
                L3MDEV if value.first() == Some(&1) => Applies::Never,
                PROTOCOL if value.first() != Some(&(libc::IPPROTO_TCP as u8)) => Applies::Never,
                USERS if value.get(..4) != Some(&[0; 4]) || u32_at(value, 4) != u32::MAX => {
                    Applies::Perhaps
                }
                SOURCE_PORTS | PORTS => Applies::Perhaps,
                SUPPRESS_GROUP if number != u32::MAX => Applies::Perhaps,
                SUPPRESS_PREFIX if number != u32::MAX => {
                    rule.suppressed = Some(number);
                    Applies::Always
                }
                PRIORITY => {
                    rule.priority = number;
                    Applies::Always
                }
                MARK => {
                    mark = number;
                    Applies::Always
                }
                MASK => {
                    mask = Some(number);
                    Applies::Always
                }
                TABLE => {
                    table = number;
                    Applies::Always
                }
                ..=LAST => Applies::Always,
                // A traffic class, a flow label, a mask of ports, or what later kernels have.
                _ => Applies::Perhaps,
            };
            rule.is_of_datagrams |= kind == PROTOCOL && value.first() == Some(&UDP);
            at_most = at_most.min(bound);
        }
        if mark & mask.unwrap_or(u32::MAX) != 0 {
            at_most = Applies::Never;
        }
        rule.applies = at_most;
        rule.action = match fixed[7] {
            TO_TABLE => Action::Table(table),
            NOTHING => Action::Nothing,
            BLACKHOLE..=PROHIBIT => Action::Refuse,
            _ => Action::Unknown,
        };
        Some(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Request, HEADER};

    fn rule(attributes: &[(u16, &[u8])]) -> Rule {
        let fixed = [
            libc::AF_INET as u8,
            0,
            0,
            0,
            254,
            0,
            0,
            TO_TABLE,
            0,
            0,
            0,
            0,
        ];
        let begun = Request::new(0, 0, &fixed);
        let whole = attributes.iter().fold(begun, |request, (kind, value)| {
            request.attribute(*kind, value)
        });
        Rule::read(&whole.finish(0)[HEADER..]).expect("a rule")
    }

    /// Linux 6.13 and later leave the traffic class of the fixed part empty where they say FRA_DSCP.
    #[test]
    fn a_rule_that_says_more_than_is_understood_may_apply() {
        const DSCP: u16 = 25;
        assert_eq!(rule(&[]).applies, Applies::Always);
        assert_eq!(rule(&[(21, &[2])]).applies, Applies::Always);
        for kind in DSCP..=DSCP + 9 {
            assert_eq!(rule(&[(kind, &[8])]).applies, Applies::Perhaps, "{kind}");
        }
        // Also that of marked packets.
        assert_eq!(
            rule(&[(DSCP, &[8]), (MARK, &[1; 4])]).applies,
            Applies::Never
        );
    }

    #[test]
    fn a_rule_for_datagrams_alone_is_known_as_one() {
        let [udp, tcp] = [17, 6].map(|number| rule(&[(PROTOCOL, &[number])]));
        assert_eq!((udp.applies, udp.is_of_datagrams), (Applies::Never, true));
        assert_eq!((tcp.applies, tcp.is_of_datagrams), (Applies::Always, false));
    }
}
