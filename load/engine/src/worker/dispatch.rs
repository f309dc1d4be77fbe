//! Which connection a due request of an open loop goes to, and where it waits until that is free.
//!
//! ```text
//! schedule ─► target, by weight ─► connection, by policy ─┬─ free: written at once
//!                                                         └─ busy: waits in a queue
//! ```
//! A pinned or random request waits for its own connection, as its user would who has no other:
//! a worker of the server that stands still delays whatever is due on its connections. With
//! [`Policy::Any`] it waits for whichever connection of its target becomes free first.

use crate::plan::{weighted_order, Dispatch as Policy, Target};
use crate::random::Random;
use std::collections::VecDeque;

/// Requests that wait on one thread at most; later ones wait in the schedule, which needs no memory.
const WAITING_MAX: usize = 1 << 20;

/// A due request that waits for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// When it was due.
    pub due_ns: u64,
    /// How long the thread had been away, summed up, when the request fell due.
    pub away_before_ns: u64,
}

/// The connections of one target on this thread.
#[derive(Debug, Default)]
struct Pool {
    /// Their numbers in ascending order; a ramp uses the first `wanted` of them.
    members: Vec<u32>,
    wanted: usize,
    /// Place of the next pinned request.
    next: usize,
    /// Whether that began another round.
    has_gone_round: bool,
    /// Free ones with their generations, the longest free first ([`Policy::Any`]).
    free: VecDeque<(u32, u32)>,
    /// Requests that wait for any of them ([`Policy::Any`]).
    queue: VecDeque<Waiting>,
}

/// Connections of an open loop, and the requests that wait for them; empty in a closed loop.
#[derive(Debug)]
pub(super) struct Dispatch {
    policy: Policy,
    /// Targets by weight, again and again.
    order: Vec<u32>,
    cursor: usize,
    pools: Vec<Pool>,
    /// Requests that wait for a connection of their own, by its number.
    queues: Vec<VecDeque<Waiting>>,
    /// Connections that are among the free ones (with streams each is there once).
    listed: Vec<bool>,
    waiting: usize,
    random: Random,
}

impl Dispatch {
    /// For connections to `targets`, whose numbers `target_of` has by connection.
    pub fn new(policy: Policy, targets: &[Target], target_of: &[usize], seed: u64) -> Dispatch {
        let weights: Vec<u32> = targets.iter().map(|target| target.weight).collect();
        let mut pools: Vec<Pool> = targets.iter().map(|_| Pool::default()).collect();
        for (&target, number) in target_of.iter().zip(0..) {
            pools[target].members.push(number);
        }
        Dispatch {
            policy,
            order: weighted_order(&weights),
            cursor: 0,
            pools,
            queues: vec![VecDeque::new(); target_of.len()],
            listed: vec![false; target_of.len()],
            waiting: 0,
            random: Random::new(seed),
        }
    }

    /// From now on the first `wanted` connections are used. The requests that waited for others are
    /// given back, with their targets.
    pub fn resize(&mut self, wanted: usize) -> Vec<(usize, Waiting)> {
        let mut left = Vec::new();
        for (target, pool) in self.pools.iter_mut().enumerate() {
            pool.wanted = pool
                .members
                .partition_point(|&number| (number as usize) < wanted);
            for &number in &pool.members[pool.wanted..] {
                let queue = std::mem::take(&mut self.queues[number as usize]);
                left.extend(queue.into_iter().map(|waiting| (target, waiting)));
            }
        }
        self.waiting -= left.len();
        left
    }

    /// The target of the next due request.
    #[inline]
    pub fn next_target(&mut self) -> usize {
        let target = self.order[self.cursor];
        self.cursor += 1;
        if self.cursor == self.order.len() {
            self.cursor = 0;
        }
        target as usize
    }

    /// The connection that a request to `target` belongs to, free or not; none if any will do.
    #[inline]
    pub fn own_connection(&mut self, target: usize) -> Option<usize> {
        let pool = &mut self.pools[target];
        let place = match self.policy {
            Policy::Any => return None,
            Policy::Random => (self.random.bits() % pool.wanted.max(1) as u64) as usize,
            Policy::Pinned => {
                if pool.next >= pool.wanted {
                    (pool.next, pool.has_gone_round) = (0, true);
                }
                pool.next += 1;
                pool.next - 1
            }
        };
        Some(pool.members[place] as usize)
    }

    /// Whether a pinned request of `target` begins a round over its connections in which each would
    /// ask for what it has asked before, as their number and that of the requests in the target's
    /// order have a common factor.
    #[inline]
    pub fn repeats(&mut self, target: usize, requests: usize) -> bool {
        let pool = &mut self.pools[target];
        std::mem::take(&mut pool.has_gone_round) && common_factor(pool.wanted, requests) > 1
    }

    /// A connection of `target` has become free, and no request waits for it.
    #[inline]
    pub fn note_free(&mut self, target: usize, number: usize, generation: u32) {
        if self.policy == Policy::Any && !self.listed[number] {
            self.listed[number] = true;
            let pool = &mut self.pools[target];
            pool.free.push_back((number as u32, generation));
        }
    }

    /// The connection of `target` that has been free for longest, if it still is.
    #[inline]
    pub fn pop_free(&mut self, target: usize) -> Option<(u32, u32)> {
        let free = self.pools[target].free.pop_front()?;
        self.listed[free.0 as usize] = false;
        Some(free)
    }

    /// Whether a due request could only wait: nothing need be done when it falls due.
    pub fn none_is_free(&self) -> bool {
        self.policy == Policy::Any && self.pools.iter().all(|pool| pool.free.is_empty())
    }

    /// A due request waits, for the connection or for any of its target.
    #[inline]
    pub fn wait(&mut self, target: usize, connection: Option<usize>, waiting: Waiting) {
        self.waiting += 1;
        match connection {
            Some(number) => self.queues[number].push_back(waiting),
            None => self.pools[target].queue.push_back(waiting),
        }
    }

    /// Whether a request waits that a connection of `target` could take.
    #[inline]
    pub fn has_waiting(&self, target: usize, number: usize) -> bool {
        self.waiting > 0
            && match self.policy {
                Policy::Any => !self.pools[target].queue.is_empty(),
                Policy::Pinned | Policy::Random => !self.queues[number].is_empty(),
            }
    }

    /// The request that a free connection of `target` takes, the oldest first.
    #[inline]
    pub fn take(&mut self, target: usize, number: usize) -> Option<Waiting> {
        let taken = match self.policy {
            Policy::Any => self.pools[target].queue.pop_front(),
            Policy::Pinned | Policy::Random => self.queues[number].pop_front(),
        };
        self.waiting -= usize::from(taken.is_some());
        taken
    }

    /// Requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether no more can wait here.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.waiting >= WAITING_MAX
    }

    /// Due times of all that wait.
    pub fn due_times(&self) -> impl Iterator<Item = u64> + '_ {
        let shared = self.pools.iter().map(|pool| &pool.queue);
        let all = shared.chain(&self.queues).flatten();
        all.map(|waiting| waiting.due_ns)
    }

    /// Nothing is known to be free, as before the start.
    pub fn forget_free(&mut self) {
        self.pools.iter_mut().for_each(|pool| pool.free.clear());
        self.listed.fill(false);
    }

    /// Nothing waits any more.
    pub fn forget_waiting(&mut self) {
        self.pools.iter_mut().for_each(|pool| pool.queue.clear());
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.waiting = 0;
    }
}

/// The greatest one (Euclid).
fn common_factor(one: usize, other: usize) -> usize {
    if other == 0 {
        one
    } else {
        common_factor(other, one % other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::socket::Address;

    fn targets(weights: &[u32]) -> Vec<Target> {
        let each = weights.iter().map(|&weight| Target {
            url: String::new(),
            address: Address::Unix("/".into()),
            others: Vec::new(),
            tls_name: None,
            upgrade: None,
            requests: Vec::new(),
            order: Vec::new(),
            weight,
        });
        each.collect()
    }

    fn waiting(due_ns: u64) -> Waiting {
        Waiting {
            due_ns,
            away_before_ns: 0,
        }
    }

    #[test]
    fn targets_follow_their_weights_and_pinned_requests_their_connections() {
        let mut dispatch = Dispatch::new(Policy::Pinned, &targets(&[2, 1]), &[0, 1, 0], 1);
        dispatch.resize(3);
        let asked: Vec<_> = (0..6)
            .map(|_| {
                let target = dispatch.next_target();
                (target, dispatch.own_connection(target))
            })
            .collect();
        let (a, b, c) = ((0, Some(0)), (0, Some(2)), (1, Some(1)));
        assert_eq!(asked, [a, c, b, a, c, b]);
    }

    #[test]
    fn random_requests_reach_every_connection() {
        let mut dispatch = Dispatch::new(Policy::Random, &targets(&[1]), &[0; 10], 7);
        dispatch.resize(10);
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            counts[dispatch.own_connection(0).expect("one of its own")] += 1;
        }
        assert!(
            counts.iter().all(|&n| (800..1200).contains(&n)),
            "{counts:?}"
        );
    }

    #[test]
    fn a_request_waits_for_its_own_connection_or_for_any() {
        let mut pinned = Dispatch::new(Policy::Pinned, &targets(&[1]), &[0, 0], 1);
        pinned.resize(2);
        pinned.wait(0, Some(1), waiting(5));
        assert!(!pinned.has_waiting(0, 0) && pinned.has_waiting(0, 1));
        assert_eq!(
            (pinned.take(0, 0), pinned.take(0, 1)),
            (None, Some(waiting(5)))
        );
        let mut any = Dispatch::new(Policy::Any, &targets(&[1]), &[0, 0], 1);
        any.resize(2);
        any.wait(0, None, waiting(5));
        assert!(any.has_waiting(0, 0) && any.has_waiting(0, 1));
        assert_eq!(any.take(0, 0), Some(waiting(5)));
        assert_eq!(any.waiting(), 0);
    }

    #[test]
    fn a_free_connection_is_listed_once_and_the_longest_free_comes_first() {
        let mut dispatch = Dispatch::new(Policy::Any, &targets(&[1]), &[0, 0], 1);
        for number in [1, 0, 1] {
            dispatch.note_free(0, number, 0);
        }
        let order: Vec<_> = std::iter::from_fn(|| dispatch.pop_free(0)).collect();
        assert_eq!(order, [(1, 0), (0, 0)]);
        assert!(dispatch.none_is_free());
    }

    #[test]
    fn requests_of_a_connection_that_a_ramp_takes_away_are_given_back() {
        let mut dispatch = Dispatch::new(Policy::Pinned, &targets(&[1]), &[0, 0, 0], 1);
        dispatch.resize(3);
        dispatch.wait(0, Some(0), waiting(1));
        dispatch.wait(0, Some(2), waiting(2));
        assert_eq!(dispatch.resize(2), [(0, waiting(2))]);
        assert_eq!(dispatch.waiting(), 1);
        assert_eq!(dispatch.due_times().collect::<Vec<_>>(), [1]);
    }
}
