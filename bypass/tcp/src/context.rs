//! State that the connections of an engine share.

use crate::buffer::Pool;
use crate::config::Config;
use crate::hash::Key;
use crate::sent::Nodes;
use crate::stats::Stats;
use crate::timer::Wheel;
use crate::wire::ethernet::Mac;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Which of a device's queues are full. GSO segments, and frames that must stay behind them, may have one of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Full {
    /// None, as far as is known.
    #[default]
    None,
    /// That of GSO segments.
    Gso,
    /// That of all other frames.
    Single,
}

/// State that the connections of an engine share.
pub struct Context {
    /// The clock of this batch.
    pub now_us: u64,
    /// Settings.
    pub config: Config,
    /// The link address before the present one: neighbours may still send there.
    pub former_mac: Mac,
    /// Memory of the rings.
    pub pool: Pool,
    /// Segments in flight.
    pub nodes: Nodes,
    /// Timers.
    pub wheel: Wheel,
    /// Counters.
    pub stats: Stats,
    /// Connections with events.
    pub ready: Vec<u32>,
    /// Connections with something to send.
    pub output: Vec<u32>,
    /// Of these, the ones that found no room for a GSO segment, the next to have some in front.
    pub refused: Vec<u32>,
    /// Which queue of the device had no room in this round.
    pub full: Full,
    /// Connections that could write nothing for lack of memory, the longest waiting first.
    pub starved: VecDeque<u32>,
    /// Connections whose acknowledgments wait for an answer, and since when, the next to leave in front.
    pub waiting: VecDeque<(u32, u64)>,
    /// Challenge acknowledgments sent in this second, and which second it is.
    pub challenges: (u32, u64),
    /// The secret behind the limit of each second.
    pub challenge_key: Key,
}

impl Context {
    /// Whether a frame to this link address is for this host alone.
    #[inline]
    pub fn is_own_station(&self, destination: Mac) -> bool {
        destination == self.config.mac || destination == self.former_mac
    }

    /// Whether one more challenge may be sent now (RFC 5961, 7). A limit that everybody knows would show an
    /// attacker who uses it up whether others were challenged, and so whose numbers are right
    /// (CVE-2016-5696): each second has a limit of its own, around the one of the settings.
    pub fn may_challenge(&mut self) -> bool {
        let second = self.now_us / 1_000_000;
        let most = u64::from(self.config.challenge_acks_per_second);
        let limit = most.div_ceil(2) + self.challenge_key.hash(&[second]) % most.max(1);
        if self.challenges.1 != second {
            self.challenges = (0, second);
        }
        self.challenges.0 += 1;
        u64::from(self.challenges.0) <= limit
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Engine};

    #[test]
    fn the_limit_of_challenges_differs_from_second_to_second() {
        let mut cx = Engine::new(Config::default(), 0).cx;
        let mut of_second = |second: u64| {
            cx.now_us = second * 1_000_000;
            (0..2_000).filter(|_| cx.may_challenge()).count()
        };
        let limits: alloc::vec::Vec<usize> = (0..200).map(&mut of_second).collect();
        assert!(limits.iter().all(|limit| (500..1_500).contains(limit)));
        let mean = limits.iter().sum::<usize>() / limits.len();
        assert!((900..1_100).contains(&mean), "{mean}");
        let distinct: alloc::collections::BTreeSet<_> = limits.into_iter().collect();
        assert!(distinct.len() > 150);
    }
}
