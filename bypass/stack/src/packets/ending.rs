//! The end of a process: what it has written is delivered, as the kernel would, but not for ever.

use core::time::Duration;
use std::sync::{Mutex, MutexGuard};

use bypass_sys::clock::now_ns;

use super::relay::{Left, Relay};
use super::{drive, is_active, lock, poll, relays, take_no_more};
use crate::process::deadline::{shorter, Deadline};
use crate::process::deferral::asleep;
use crate::stream::Lingering;

/// How long a process stays for data that was sent and not acknowledged while no progress is made...
const LINGER_US: u64 = 10_000_000;
/// ...and in total.
const LATE_US: u64 = 120_000_000;
const LOOK: Duration = Duration::from_millis(1);

/// SO_LINGER with a time: waits until the other host has everything and the end, the time is over, or a
/// signal comes. The connection then goes on without the program.
pub fn linger(lingering: &Lingering) {
    let deadline = Deadline::after(Some(Duration::from_secs(lingering.seconds.into())));
    drive();
    while lingering.is_waiting() && deadline.left() != Some(Duration::ZERO) {
        let wait = shorter(deadline.left(), Some(LOOK));
        if asleep(|| poll(&mut [], wait, None)).is_err() {
            return;
        }
    }
}

/// How long others' connections may be still before they are given up. Where an answer is owed, or a connection is yet to be
/// accepted, it is [`LATE_US`]: the other process is stopped, or its machine slow.
const STILL_US: u64 = 10_000_000;

/// At exit: closes every connection that no other process has, sends what is left, and goes on as long as
/// other processes have connections that come through this one and on which something moves.
pub extern "C" fn finish() {
    take_no_more();
    if !is_active() {
        return;
    }
    let start = now_us();
    let mut stills: Vec<Still> = relays().iter().map(|one| Still::of(&lock(one))).collect();
    while !ends(start, &mut stills) {
        let _ = poll(&mut [], Some(LOOK), None);
    }
}

fn now_us() -> u64 {
    now_ns() / 1000
}

/// Most time of a round that counts as one in which nothing moves: a machine that stands still gives the others no turns either.
const ROUND_US: u64 = 10_000;

/// How long nothing has moved in an engine.
#[derive(Default)]
struct Still {
    us: u64,
    moved_us: u64,
    looked_us: u64,
}

impl Still {
    fn of(relay: &Relay) -> Self {
        Self {
            us: relay.still_us(),
            moved_us: relay.moved_us(),
            looked_us: now_us(),
        }
    }

    /// After a round, at a time; something has moved last at another.
    fn look(&mut self, moved_us: u64, now_us: u64) -> u64 {
        self.us = match moved_us == self.moved_us {
            true => self.us + (now_us - self.looked_us).min(ROUND_US),
            false => 0,
        };
        (self.moved_us, self.looked_us) = (moved_us, now_us);
        self.us
    }
}

/// A round of every engine, with which the engines end where nothing needs them any more, or for too long.
fn ends(start: u64, stills: &mut [Still]) -> bool {
    let mut stills = stills.iter_mut();
    let needs = |relay: &mut Relay| {
        relay.follow(&[]);
        relay.drive();
        let mut left = relay.close_own();
        left.has_others |= relay.is_being_reached();
        left.has_unsent |= relay.is_sending();
        let now_us = now_us();
        let still = stills
            .next()
            .map(|still| still.look(relay.moved_us(), now_us));
        is_needed(&left, still.unwrap_or_default(), now_us - start)
    };
    end_unless(relays(), needs, Relay::reset_all)
}

/// Whether an engine goes on in which nothing has moved for `still_us`, of a process that has been ending for `ending_us`.
fn is_needed(left: &Left, still_us: u64, ending_us: u64) -> bool {
    let others_us = if left.owes { LATE_US } else { STILL_US };
    let own_us = still_us.min(ending_us);
    left.has_others && still_us < others_us
        || left.has_unsent && own_us < LINGER_US && ending_us <= LATE_US
}

/// Ends all, unless one is needed; whether it did. All are locked from the first look until the last end: a thread that drove
/// one in between would accept connections for other processes, which the end would reset.
fn end_unless<T>(
    all: &[&Mutex<T>],
    mut is_needed: impl FnMut(&mut T) -> bool,
    mut end: impl FnMut(&mut T),
) -> bool {
    let mut locked: Vec<MutexGuard<T>> = all.iter().map(|one| lock(one)).collect();
    let mut is_over = true;
    for one in &mut locked {
        is_over &= !is_needed(one);
    }
    if is_over {
        locked.iter_mut().for_each(|one| end(one));
    }
    is_over
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_drives_an_engine_between_the_last_look_at_it_and_its_end() {
        let engines: [&Mutex<u32>; 3] = [0; 3].map(|zero| &*Box::leak(Box::new(Mutex::new(zero))));
        let are_locked = || engines.iter().all(|one| one.try_lock().is_err());
        let look = |engine: &mut u32| {
            *engine += 1;
            assert!(are_locked());
            false
        };
        assert!(end_unless(&engines, look, |engine| {
            *engine += 10;
            assert!(are_locked());
        }));
        assert!(engines.iter().all(|one| *lock(one) == 11));
    }

    #[test]
    fn others_have_longer_while_they_owe_an_answer() {
        let left = |owes| Left {
            has_others: true,
            owes,
            has_unsent: false,
        };
        let days_us = 1_000_000 * LATE_US;
        for (owes, limit_us) in [(false, STILL_US), (true, LATE_US)] {
            assert!(is_needed(&left(owes), limit_us - 1, days_us));
            assert!(!is_needed(&left(owes), limit_us, days_us));
        }
    }

    #[test]
    fn a_machine_that_stands_still_does_not_count_as_a_connection_that_does() {
        let mut still = Still::default();
        let minute_us = 60_000_000;
        assert!(still.look(0, minute_us) < LINGER_US);
        let rounds = (1..).find(|round| still.look(0, minute_us + round * 1000) >= STILL_US);
        assert!(rounds.is_some_and(|rounds| rounds > 9_000));
        assert_eq!(still.look(5, 2 * minute_us), 0);
    }

    #[test]
    fn bytes_are_sent_while_they_move_and_not_for_ever() {
        let left = Left {
            has_unsent: true,
            ..Left::default()
        };
        // Nothing had moved for long when the end began.
        assert!(is_needed(&left, LATE_US, LINGER_US - 1));
        assert!(!is_needed(&left, LATE_US, LINGER_US));
        assert!(is_needed(&left, 0, LATE_US));
        assert!(!is_needed(&left, 0, LATE_US + 1));
        assert!(!is_needed(&Left::default(), 0, 0));
    }

    #[test]
    fn while_one_engine_is_needed_none_ends_and_each_has_its_round() {
        let engines: [&Mutex<u32>; 3] = [0, 7, 0].map(|one| &*Box::leak(Box::new(Mutex::new(one))));
        let mut looks = 0;
        let look = |engine: &mut u32| {
            looks += 1;
            *engine == 7
        };
        assert!(!end_unless(&engines, look, |_| panic!("it is needed")));
        assert_eq!(looks, 3);
    }
}
