//! How a thread waits for events: in the kernel, with pauses before that or rests after it.

use super::coalescing::Coalescing;
use super::resting::Resting;
use crate::ending::Pauses;
use crate::plan::Plan;
use crate::sys::clock::{monotonic_ns, thread_cpu_ns};
use crate::sys::epoll::{Epoll, Events, Ready, Waits, FOREVER_NS};
use std::io;

/// A wait that only polls takes no longer; where it lasts longer, others had the core meanwhile.
const POLL_MAX_NS: u64 = 20_000;
/// CPU time of a wait that polls no network card, at most.
const PLAIN_WAIT_NS: u64 = 3_000;

/// The events of a thread's connections, and what its waits have cost.
pub(super) struct Waiter {
    pub epoll: Epoll,
    events: Events,
    /// Waits that may sleep poll network cards first.
    polls_cards: bool,
    /// Pauses before waits, if there may be any.
    coalescing: Option<Coalescing>,
    /// What a thread that must not use up its core owes, if it is one.
    resting: Option<Resting>,
    /// CPU time of waits that only polled for a due time, and of polls of network cards, at most.
    polling_ns: u64,
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
            polls_cards: plan.busy_poll_us.is_some(),
            coalescing: coalesces.then(Coalescing::default),
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
        let count = if self.polls_cards && timeout_ns > 0 {
            self.wait_at_cards(timeout_ns)
        } else {
            self.epoll.wait(&mut self.events, timeout_ns)
        };
        let now = monotonic_ns();
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.note_found(count);
        }
        if count == 0 && is_polling {
            self.polling_ns += (now - before_ns).min(POLL_MAX_NS);
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

    /// Waits where the kernel polls network cards before it sleeps: meanwhile it looks for events, and at the
    /// timeout of the wait only afterwards, so that the alarm ends the wait.
    fn wait_at_cards(&mut self, mut timeout_ns: u64) -> usize {
        if timeout_ns != FOREVER_NS && self.epoll.set_alarm(monotonic_ns() + timeout_ns) {
            timeout_ns = FOREVER_NS;
        }
        let before_ns = thread_cpu_ns();
        let count = self.epoll.wait(&mut self.events, timeout_ns);
        self.polling_ns += card_poll_ns(thread_cpu_ns() - before_ns);
        count
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

    /// The measured window begins: what waits have cost before it does not count.
    pub fn begin_window(&mut self) {
        self.polling_ns = 0;
        if let Some(coalescing) = &mut self.coalescing {
            coalescing.begin_window();
        }
    }

    /// CPU time that was spent without work to do: polls for due times and of network cards.
    pub fn idle_ns(&self) -> u64 {
        self.polling_ns
    }

    /// The waits and pauses of the window so far.
    pub fn pauses(&self) -> Pauses {
        let own = self.coalescing.as_ref();
        own.map_or(Pauses::default(), |own| own.pauses)
    }
}

/// How much of the CPU time of a wait went into polling a network card.
fn card_poll_ns(wait_cpu_ns: u64) -> u64 {
    wait_cpu_ns.saturating_sub(PLAIN_WAIT_NS)
}

/// A closed loop waits for answers; only a schedule needs exact ends of its waits.
fn open_epoll(plan: &Plan) -> io::Result<Epoll> {
    let waits = match plan.open() {
        Some(_) => Waits::for_due_times(),
        None => Waits::Late,
    };
    let mut epoll = Epoll::open(plan.trigger, waits)?;
    if plan.open().is_none() || plan.busy_poll_us.is_some() {
        epoll.add_alarm()?;
    }
    if let Some(poll_us) = plan.busy_poll_us {
        epoll.set_busy_poll(poll_us)?;
    }
    Ok(epoll)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Dispatch, Late, Open, Pace};

    const MILLISECOND_NS: u64 = 1_000_000;

    #[test]
    fn an_event_ends_a_wait_at_a_fixed_rate_that_polls_network_cards() {
        let plan = Plan {
            busy_poll_us: Some(1_000_000),
            pace: Pace::Open(Open {
                stretches: Vec::new(),
                recorded: None,
                poisson: false,
                seed: 1,
                dispatch: Dispatch::Pinned,
                late: Late::Queue,
                deadline_ns: None,
            }),
            ..Plan::plain(1, MILLISECOND_NS)
        };
        // a kernel before 6.9 cannot
        let Ok(mut waiter) = Waiter::new(&plan) else {
            return;
        };
        for _ in 0..2 {
            let due_ns = monotonic_ns() + MILLISECOND_NS;
            let woken = waiter.wait(MILLISECOND_NS, false, None);
            assert_eq!(woken.count, 1, "the alarm's");
            assert!(woken.now >= due_ns, "not before its time");
        }
        assert_eq!(waiter.wait(0, true, None).count, 0, "no wait, no alarm");
    }

    #[test]
    fn only_cpu_time_beyond_a_plain_wait_went_into_polling_network_cards() {
        assert_eq!(card_poll_ns(PLAIN_WAIT_NS - 1), 0);
        assert_eq!(card_poll_ns(PLAIN_WAIT_NS + 47_000), 47_000);
    }
}
