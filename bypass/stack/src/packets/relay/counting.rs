//! What the interface has lost, for the statistics of the process.

use bypass_shard::Counters;
use bypass_stats::Counter;

use super::Relay;
use crate::process;

/// Frames that were lost, since the device was opened.
#[derive(Debug, Clone, Copy)]
pub struct Losses {
    incoming: u64,
    outgoing: u64,
}

impl Losses {
    /// What these say.
    pub fn of(counters: &Counters) -> Self {
        Self {
            incoming: counters.receive_overruns + counters.receive_invalid,
            outgoing: counters.send_errors,
        }
    }
}

impl Relay {
    /// Counts what was lost since the last time.
    pub(super) fn count_losses(&mut self) {
        let before = std::mem::replace(&mut self.losses, Losses::of(&self.shard.counters()));
        let now = self.losses;
        let lost = [
            (Counter::FramesLostIn, now.incoming, before.incoming),
            (Counter::FramesLostOut, now.outgoing, before.outgoing),
        ];
        for (counter, now, before) in lost {
            if now > before {
                process::count(counter, now - before);
            }
        }
    }
}
