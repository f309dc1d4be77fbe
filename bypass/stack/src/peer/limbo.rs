//! Objects that have no references left, but which a thread may still access without a reference, in an
//! operation that does not sleep: they are kept for a while before they are freed.
//!
//! A while is counted in ticks and not in seconds: after a stop of the whole process the clock has
//! run on and the threads have not. Nor does a tick count in which one thread has been kept from running.

use core::sync::atomic::{fence, Ordering};
use std::sync::Arc;

/// Shortest time between ticks.
const TICK_NS: u64 = 4_000_000_000;
/// Ticks that a thing rests.
const REST_TICKS: u64 = 3;

/// See the module.
pub(super) struct Limbo<T> {
    tick: u64,
    ticked_ns: u64,
    /// With the tick at which each came.
    resting: Vec<(u64, Arc<T>)>,
}

impl<T> Limbo<T> {
    /// Empty.
    pub const fn new() -> Self {
        Self {
            tick: 0,
            ticked_ns: 0,
            resting: Vec::new(),
        }
    }

    /// Its rest begins.
    pub fn add(&mut self, thing: Arc<T>) {
        self.resting.push((self.tick, thing));
    }

    /// What rests.
    pub fn all(&self) -> impl Iterator<Item = &Arc<T>> {
        self.resting.iter().map(|(_, thing)| thing)
    }

    /// The things without another reference. A thread may still look at them.
    pub fn alone(&self) -> impl Iterator<Item = &T> {
        let things = self.resting.iter().map(|(_, thing)| thing);
        let alone = things.filter(|thing| Arc::strong_count(thing) == 1);
        // All that was done through the last other reference comes before what is done now.
        alone.map(|thing| {
            fence(Ordering::Acquire);
            &**thing
        })
    }

    /// Lets go of what has rested long enough; true when something still rests. `has_starved`: whether a thread has been
    /// kept from running since it was asked before.
    pub fn clean(&mut self, now_ns: u64, has_starved: impl FnOnce() -> bool) -> bool {
        if now_ns.saturating_sub(self.ticked_ns) >= TICK_NS {
            self.ticked_ns = now_ns;
            self.tick(!self.resting.is_empty() && has_starved());
        }
        !self.resting.is_empty()
    }

    fn tick(&mut self, has_starved: bool) {
        self.tick += 1;
        let tick = self.tick;
        self.resting.retain_mut(|(since, thing)| {
            if has_starved || Arc::strong_count(thing) > 1 {
                // A thread may be in the middle of a look; or it is referred to still, by a set or a socket: ours is to
                // be the last reference.
                *since = tick;
            }
            tick - *since < REST_TICKS
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(limbo: &mut Limbo<()>, ticks: u64) -> bool {
        for _ in 0..ticks {
            let next = limbo.ticked_ns + TICK_NS;
            limbo.clean(next, || false);
        }
        limbo.all().next().is_some()
    }

    #[test]
    fn a_thread_that_does_not_run_keeps_what_it_may_look_at() {
        let mut limbo = Limbo::new();
        limbo.add(Arc::new(()));
        for _ in 0..10 * REST_TICKS {
            let next = limbo.ticked_ns + TICK_NS;
            assert!(limbo.clean(next, || true));
        }
        assert!(after(&mut limbo, REST_TICKS - 1));
        assert!(!after(&mut limbo, 1));
    }

    #[test]
    fn what_a_set_still_refers_to_rests_from_when_the_set_lets_it_go() {
        let mut limbo = Limbo::new();
        let of_a_set = Arc::new(());
        let watch = Arc::downgrade(&of_a_set);
        limbo.add(of_a_set.clone());
        assert!(after(&mut limbo, 10 * REST_TICKS));
        drop(of_a_set);
        // The set's was not the last reference: a look without one is still harmless.
        assert!(watch.upgrade().is_some());
        assert!(after(&mut limbo, REST_TICKS - 1));
        assert!(!after(&mut limbo, 1));
        assert!(watch.upgrade().is_none());
    }

    #[test]
    fn a_clock_that_has_run_on_is_one_tick() {
        let mut limbo = Limbo::new();
        limbo.add(Arc::new(()));
        assert!(limbo.clean(TICK_NS * 1000, || false));
        assert!(limbo.clean(TICK_NS * 2000, || false));
        assert!(!limbo.clean(TICK_NS * 3000, || false));
    }
}
