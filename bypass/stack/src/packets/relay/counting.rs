//! Losses of the interface, for the statistics of the process.

use bypass_shard::Shard;
use bypass_stats::Counter;

use super::Relay;
use crate::process;

/// Frames that were lost, since the device was opened.
#[derive(Debug, Clone, Copy)]
pub struct Losses {
    incoming: u64,
    outgoing: u64,
    /// Handed to other engines, and by them.
    given: u64,
    taken: u64,
}

impl Losses {
    /// The present counters of a shard.
    pub fn of(shard: &Shard) -> Self {
        let (counters, crossed) = (shard.counters(), shard.crossed());
        Self {
            incoming: counters.receive_overruns + counters.receive_invalid + crossed.lost,
            outgoing: counters.send_errors,
            given: crossed.given,
            taken: crossed.taken,
        }
    }
}

impl Relay {
    /// Leaves out the losses of other processes at a queue that this process has taken.
    pub(super) fn forget_losses(&mut self) {
        self.losses = Losses::of(&self.shard);
    }

    /// Counts what was lost since the last time.
    pub(super) fn count_losses(&mut self) {
        let before = std::mem::replace(&mut self.losses, Losses::of(&self.shard));
        let now = self.losses;
        let lost = [
            (Counter::FramesLostIn, now.incoming, before.incoming),
            (Counter::FramesLostOut, now.outgoing, before.outgoing),
            (Counter::FramesGiven, now.given, before.given),
            (Counter::FramesTaken, now.taken, before.taken),
        ];
        for (counter, now, before) in lost {
            if now > before {
                process::count(counter, now - before);
            }
        }
    }
}
