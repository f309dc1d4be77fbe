//! The end of a process: what it has written is delivered, as the kernel would, but not for ever.

use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Mutex, MutexGuard};

use bypass_sys::clock::now_ns;
use bypass_sys::thread::thread;

use super::relay::{Left, Relay};
use super::relays::{self, lock};
use super::{drive, is_active, poll, take_no_more};
use crate::process::deadline::{shorter, Deadline};
use crate::process::deferral::{asleep, inside};
use crate::stream::Lingering;

/// How long a process that ends stays while nothing moves: for bytes that are not acknowledged, and for others' connections...
const STILL_US: u64 = 10_000_000;
/// ...and in total for its own bytes, when they move slowly.
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

/// When the end began; 0: not yet.
static ENDING_SINCE_US: AtomicU64 = AtomicU64::new(0);

/// At exit: closes every connection that no other process has, sends what is left, and goes on for a while as long as
/// other processes have connections that come through this one and on which something moves.
pub extern "C" fn finish() {
    // A handler that could not be put off, in the middle of an operation: its own thread has what would be locked.
    if thread().inside.load(Ordering::Relaxed) > 0 {
        return;
    }
    take_no_more();
    if !is_active() {
        return;
    }
    let start_us = first_of(&ENDING_SINCE_US, now_us());
    // Handlers, which may end the process too, run between the rounds.
    while !inside(|| ends(start_us)) {
        let _ = poll(&mut [], Some(LOOK), None);
    }
}

/// In a forked child: the end is the parent's.
pub fn forget() {
    ENDING_SINCE_US.store(0, Ordering::Relaxed);
}

/// The time that was noted first.
fn first_of(place: &AtomicU64, us: u64) -> u64 {
    let noted = place.compare_exchange(0, us, Ordering::Relaxed, Ordering::Relaxed);
    noted.map_or_else(|first| first, |_| us)
}

fn now_us() -> u64 {
    now_ns() / 1000
}

/// A round of every engine, with which the engines end where nothing needs them any more, or for too long.
fn ends(start_us: u64) -> bool {
    let needs = |place: &mut Option<Box<Relay>>| {
        let Some(relay) = place else {
            return false;
        };
        relay.follow(&[]);
        relay.drive();
        let mut left = relay.close_own();
        left.has_others |= relay.is_being_reached();
        left.has_unsent |= relay.is_sending();
        is_needed(&left, relay.still_us(), now_us() - start_us)
    };
    end_unless(relays::places(), needs, |place| {
        place.iter_mut().for_each(|relay| relay.reset_all());
    })
}

/// Whether an engine goes on in which nothing has moved for `still_us`, of a process that has been ending for `ending_us`.
fn is_needed(left: &Left, still_us: u64, ending_us: u64) -> bool {
    let own_us = still_us.min(ending_us);
    let has_own = left.has_unsent && own_us < STILL_US && ending_us < LATE_US;
    has_own || left.has_others && still_us < STILL_US
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
    use super::super::try_for;
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

    fn left(has_others: bool, has_unsent: bool) -> Left {
        Left {
            has_others,
            has_unsent,
        }
    }

    #[test]
    fn others_connections_are_carried_as_long_as_they_move() {
        let others = left(true, false);
        assert!(is_needed(&others, STILL_US - 1, 0));
        assert!(!is_needed(&others, STILL_US, 0));
        assert!(is_needed(&others, 0, LATE_US));
        assert!(!is_needed(&others, STILL_US, LATE_US));
    }

    #[test]
    fn bytes_are_sent_while_they_move_and_not_for_ever() {
        let unsent = left(false, true);
        // Nothing had moved for long when the end began.
        assert!(is_needed(&unsent, LATE_US, STILL_US - 1));
        assert!(!is_needed(&unsent, LATE_US, STILL_US));
        assert!(is_needed(&unsent, 0, LATE_US - 1));
        assert!(!is_needed(&unsent, 0, LATE_US));
        assert!(!is_needed(&left(false, false), 0, 0));
    }

    #[test]
    fn a_second_end_of_a_process_has_no_time_of_its_own() {
        let since_us = AtomicU64::new(0);
        assert_eq!(first_of(&since_us, 5), 5);
        assert_eq!(first_of(&since_us, 9), 5);
    }

    #[test]
    fn an_end_in_the_middle_of_an_operation_waits_for_nothing() {
        let since_us = ENDING_SINCE_US.load(Ordering::Relaxed);
        inside(finish_within_an_operation);
        assert_eq!(ENDING_SINCE_US.load(Ordering::Relaxed), since_us);
    }

    fn finish_within_an_operation() {
        let _locked = super::super::IS_STARTED.lock();
        finish();
    }

    #[test]
    fn a_handler_asks_for_a_while_for_what_another_thread_has() {
        let one = Mutex::new(());
        let locked = lock(&one);
        assert!(try_for(&one, 2).is_none());
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| try_for(&one, u32::MAX).is_some());
            drop(locked);
            assert!(asking.join().expect("ends"));
        });
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
