//! What a thread sends: the requests of its targets in their order, and how many it may still begin.

use super::connection::Connection;
use crate::plan::{Plan, Rendered, Target};

/// A request up to this length is one segment on any path.
const SEGMENT_BYTES: usize = 512;

/// The requests of a thread.
pub(super) struct Requests {
    pub targets: Vec<Target>,
    /// Place of each target's next request in its order.
    cursors: Vec<u32>,
    /// Each request has a due time of its own, and its place in the order is its own too.
    are_recorded: bool,
    /// Requests of one batch.
    pub depth: usize,
    /// Requests that this thread may still begin.
    left: u64,
    /// Those among them that have fallen due and wait.
    scheduled: u64,
}

impl Requests {
    /// Those of thread `number`, in batches of `depth`.
    pub fn new(plan: &Plan, number: usize, mut targets: Vec<Target>, depth: usize) -> Requests {
        let open = plan.open();
        let are_recorded = open.is_some_and(|open| open.recorded.is_some());
        if are_recorded {
            // each thread has its own part of requests and due times
            for target in &mut targets {
                let own = target.order.iter().skip(number).step_by(plan.threads);
                target.order = own.copied().collect();
            }
        }
        // threads begin at different places, unless each has an order of its own
        let first = |target: &Target| match are_recorded {
            true => 0,
            false => (target.order.len() * number / plan.threads) as u32,
        };
        Requests {
            cursors: targets.iter().map(first).collect(),
            targets,
            are_recorded,
            depth,
            left: own_requests(plan, number, depth),
            scheduled: 0,
        }
    }

    /// Whether each batch of one request fits a segment, so that Nagle's rule never holds a part of it
    /// back.
    pub fn are_short(&self) -> bool {
        let mut requests = self.targets.iter().flat_map(|target| &target.requests);
        self.depth == 1 && requests.all(|request| request.bytes.len() <= SEGMENT_BYTES)
    }

    /// The request that a connection sends now, whose target's next one follows on whichever connection
    /// comes next: connections that began together would otherwise ask for the same all along.
    #[inline(always)] // every request comes by here
    pub fn next<S>(&mut self, connection: &mut Connection<S>) -> &Rendered {
        let target = &self.targets[usize::from(connection.target)];
        let cursor = &mut self.cursors[usize::from(connection.target)];
        let number = target.order[*cursor as usize];
        *cursor += 1;
        if *cursor as usize == target.order.len() {
            *cursor = 0;
        }
        connection.request = number;
        let request = &target.requests[number as usize];
        connection.head_only = request.head_only;
        if request.mixed.is_some() {
            connection.pieces().mixed = request.mixed.clone();
        }
        request
    }

    /// Number of a target's next request.
    pub fn upcoming(&self, target: usize) -> u32 {
        self.targets[target].order[self.cursors[target] as usize]
    }

    /// Place of a target's next request.
    pub fn place(&self, target: usize) -> u32 {
        self.cursors[target]
    }

    /// The next request of a target is the one at this place.
    pub fn go_to(&mut self, target: usize, place: u32) {
        self.cursors[target] = place;
    }

    /// The next request of a target is left out, for once.
    pub fn skip(&mut self, target: usize) {
        if !self.are_recorded {
            self.advance(target);
        }
    }

    /// Whether no batch may begin any more.
    #[inline]
    pub fn are_used_up(&self) -> bool {
        self.left == 0
    }

    /// Whether none may fall due any more.
    #[inline]
    pub fn are_all_due(&self) -> bool {
        self.left <= self.scheduled
    }

    /// Batches that may still fall due.
    pub fn not_due(&self) -> u64 {
        self.left.saturating_sub(self.scheduled) / self.depth as u64
    }

    /// A batch begins.
    #[inline]
    pub fn begin(&mut self) {
        self.left = self.left.saturating_sub(self.depth as u64);
    }

    /// A request that finds no connection is one of those after which the run ends.
    pub fn fail_one(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// A batch has fallen due.
    #[inline]
    pub fn note_due(&mut self) {
        self.scheduled += self.depth as u64;
    }

    /// One that had fallen due waits no more.
    #[inline]
    pub fn note_taken(&mut self) {
        self.scheduled = self.scheduled.saturating_sub(self.depth as u64);
    }

    /// One to a target that had fallen due will not begin.
    pub fn give_up(&mut self, target: usize) {
        self.note_taken();
        self.begin();
        if self.are_recorded {
            // its line of the log is left out with it: the next due time has the next line
            self.advance(target);
        }
    }

    /// The next request of a target is the one after it.
    #[inline]
    fn advance(&mut self, target: usize) {
        let cursor = &mut self.cursors[target];
        *cursor += 1;
        if *cursor as usize == self.targets[target].order.len() {
            *cursor = 0;
        }
    }
}

/// The requests of a thread, whole batches of them.
fn own_requests(plan: &Plan, number: usize, depth: usize) -> u64 {
    let Some(all) = plan.requests else {
        return u64::MAX;
    };
    let batches = all.div_ceil(depth as u64) as usize;
    (plan.share(batches, number) * depth) as u64
}
