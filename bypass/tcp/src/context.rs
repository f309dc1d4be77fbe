//! What the connections of an engine share.

use crate::buffer::Pool;
use crate::config::Config;
use crate::sent::Nodes;
use crate::stats::Stats;
use crate::timer::Wheel;
use alloc::vec::Vec;

/// What the connections of an engine share.
pub struct Context {
    /// The clock of this batch.
    pub now_us: u64,
    /// Settings.
    pub config: Config,
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
    /// Challenge acknowledgments sent in this second, and which second it is.
    pub challenges: (u32, u64),
}

impl Context {
    /// Whether one more challenge may be sent now (RFC 5961, 7).
    pub fn may_challenge(&mut self) -> bool {
        let second = self.now_us / 1_000_000;
        if self.challenges.1 != second {
            self.challenges = (0, second);
        }
        self.challenges.0 += 1;
        self.challenges.0 <= self.config.challenge_acks_per_second
    }
}
