//! How a thread waits for events: in the kernel, with pauses before that or rests after it.

use super::coalescing::Coalescing;
use super::resting::Resting;
use crate::ending::Pauses;
use crate::plan::Plan;
use crate::sys::clock::monotonic_ns;
use crate::sys::epoll::{Epoll, Events, Ready, Waits};
use std::io;

/// The events of a thread's connections, and what its waits have cost.
pub(super) struct Waiter {
    pub epoll: Epoll,
    events: Events,
    /// Pauses before waits, if there may be any.
    coalescing: Option<Coalescing>,
    /// What a thread that must not use up its core owes, if it is one.
    resting: Option<Resting>,
    /// Time of waits that only polled for a due time.
    pub polling_ns: u64,
}

/// What a wait has found, and when.
pub(super) struct Woken {
    /// Events to look at.
    pub count: usize,
    /// The time after the wait.
    pub now: u64,
    /// Since when what has come has waited for this thread, at most.
    pub woken_ns: u64,
}

impl Waiter {
    /// As the plan has it.
    pub fn new(plan: &Plan) -> io::Result<Waiter> {
        let is_open = plan.open().is_some();
        let coalesces = plan.coalesce && !is_open;
        Ok(Waiter {
            epoll: open_epoll(plan)?,
            events: Events::default(),
            coalescing: coalesces.then(|| Coalescing::new(plan.protocol.streams())),
            resting: (plan.realtime && is_open).then(Resting::default),
            polling_ns: 0,
        })
    }

    /// Pauses before a wait that would find little, with so many requests outstanding; when it began to.
    #[inline]
    pub fn pause(&mut self, outstanding: usize) -> Option<u64> {
        self.coalescing.as_mut()?.pause(outstanding)
    }

    /// Waits for events, after a pause that began at `paused_ns`. Where nothing comes, it has polled if
    /// `is_polling`.
    #[inline]
    pub fn wait(&mut self, timeout_ns: u64, is_polling: bool, paused_ns: Option<u64>) -> Woken {
        let is_timed = is_polling || self.resting.is_some();
        let before_ns = if is_timed { monotonic_ns() } else { 0 };
        let count = self.epoll.wait(&mut self.events, timeout_ns);
        let now = monotonic_ns();
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.note_found(count);
        }
        if count == 0 && is_polling {
            self.polling_ns += now - before_ns;
        }
        if let Some(resting) = self.resting.as_mut().filter(|_| timeout_ns > 0) {
            resting.note_wait(now - before_ns);
        }
        // what came in a pause has waited for us since, at most
        let woken_ns = paused_ns.unwrap_or(now);
        Woken {
            count,
            now,
            woken_ns,
        }
    }

    /// The token and the readiness of an event that was found.
    #[inline]
    pub fn event(&self, number: usize) -> (u64, Ready) {
        self.events.get(number)
    }

    /// Chooses the length of pauses by what was answered so far.
    pub fn adapt(&mut self, now: u64, answers: u64, outstanding: usize) {
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.adapt(now, answers, outstanding);
        }
    }

    /// Sleeps what is owed.
    #[inline]
    pub fn rest(&mut self, now: u64) {
        if let Some(resting) = &mut self.resting {
            resting.rest(now);
        }
    }

    /// The waits and pauses so far.
    pub fn pauses(&self) -> Pauses {
        let own = self.coalescing.as_ref();
        own.map_or(Pauses::default(), |own| own.pauses)
    }
}

/// A closed loop waits for answers; only a schedule needs exact ends of its waits.
fn open_epoll(plan: &Plan) -> io::Result<Epoll> {
    if plan.open().is_some() {
        return Epoll::open(plan.trigger, Waits::for_due_times());
    }
    let mut epoll = Epoll::open(plan.trigger, Waits::Late)?;
    epoll.add_alarm()?;
    Ok(epoll)
}
