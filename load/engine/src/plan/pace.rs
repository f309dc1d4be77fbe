//! When requests are sent: when answers come (closed loop), or when they are due (open loop).

use crate::schedule::Stretch;
use crate::sys::control::Control;
use std::sync::Arc;

/// The open loop: requests at a rate, whatever the answers do.
#[derive(Clone, Debug)]
pub struct Open {
    /// The rate over the measured window; the warm-up has the rate of its beginning.
    pub stretches: Vec<Stretch>,
    /// The due times of all requests from the start on, where they do not follow from the rate. Request k
    /// of them is the k-th of the one target's order.
    pub recorded: Option<Arc<[u64]>>,
    /// Poisson arrivals instead of even ones.
    pub poisson: bool,
    /// Seed of the Poisson process.
    pub seed: u64,
    /// Which connection a due request goes to.
    pub dispatch: Dispatch,
    /// Whether a due request whose connection is busy waits or is dropped.
    pub late: Late,
    /// A request that could not be sent so long after it was due is shed.
    pub deadline_ns: Option<u64>,
}

impl Open {
    /// Whether the rate is the same all the time.
    pub fn is_steady(&self) -> bool {
        let mut rates = self
            .stretches
            .iter()
            .flat_map(|one| [one.from_rps, one.to_rps]);
        let first = rates.next();
        self.recorded.is_none() && rates.all(|rate| Some(rate) == first)
    }
}

/// The closed loop: each user sends when the answer to the last request is there.
#[derive(Clone, Debug, Default)]
pub struct Closed {
    /// Users think before each request.
    pub think: Option<Think>,
    /// The file through which another program holds the load back.
    pub control: Option<Arc<Control>>,
}

/// When requests are sent.
#[derive(Clone, Debug)]
pub enum Pace {
    /// When answers come.
    Closed(Closed),
    /// When they are due.
    Open(Open),
}

/// Which connection of its target a due request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Each connection has its own requests: the next one of the target, in turn. One that is busy
    /// keeps them waiting, as it does under wrk2.
    Pinned,
    /// The one that has been free for longest: a busy connection delays only its own request.
    Any,
    /// One drawn at random, whether it is free or not.
    Random,
}

impl Dispatch {
    /// Its name on the command line and in result files.
    pub fn name(self) -> &'static str {
        match self {
            Dispatch::Pinned => "pinned",
            Dispatch::Any => "any",
            Dispatch::Random => "random",
        }
    }
}

/// Whether a due request whose connection is busy waits or is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// It waits, and its wait counts.
    Queue,
    /// It is dropped and counted.
    Drop,
}

/// How long each user of a closed loop waits between a response and the next request: evenly drawn
/// from this range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Think {
    /// Shortest.
    pub least_ns: u64,
    /// Longest.
    pub most_ns: u64,
}

/// How a thread waits for the next due time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// In the kernel until it is due.
    Sleep,
    /// In the kernel until shortly before, then polling.
    Hybrid,
    /// Polling only.
    Spin,
}
