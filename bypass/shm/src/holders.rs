//! The processes that hold an end of a connection, in one word, so that one operation decides who is the last.
//!
//! ```text
//! bit 63 QUEUED   it waits to be accepted
//! bit 62 CLOSING  the last holder is writing the end
//! bit 61 LISTED   0: bit n is process n of the side, for the first 60 processes
//!                 1: six fields of ten bits, each an index plus one; 0 is free
//! ```
//!
//! Any number of the first 60 processes fit, or up to six of all: an end is held by a server's parent and its
//! child, or by the programs of a shell, while a segment has hundreds of processes.

use crate::atomic::{AtomicU64, Ordering};
use crate::layout::{CLOSING, MASKED, PROCESSES, QUEUED};

const LISTED: u64 = 1 << 61;
const FIELD_BITS: usize = 10;
const FIELDS: usize = 6;
const FIELD: u64 = (1 << FIELD_BITS) - 1;
/// The bits of either form.
const NAMED: u64 = (1 << (FIELD_BITS * FIELDS)) - 1;

const _: () = assert!(PROCESSES < 1 << FIELD_BITS && MASKED <= FIELD_BITS * FIELDS);

/// A value of the word. Equal sets of processes have equal words, unless a peer has written one by hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holders(pub u64);

impl Holders {
    /// That process alone; of a number that no process has, none.
    #[inline]
    pub fn only(process: usize) -> Self {
        if process < MASKED {
            Self(1 << process)
        } else if process < PROCESSES {
            Self(LISTED | (process as u64 + 1))
        } else {
            Self(0)
        }
    }

    /// The processes' indices.
    #[inline]
    pub fn processes(self) -> impl Iterator<Item = usize> + Clone {
        let is_listed = self.0 & LISTED != 0;
        let mut left = self.0 & NAMED;
        core::iter::from_fn(move || {
            while is_listed && left != 0 {
                let field = (left & FIELD) as usize;
                left >>= FIELD_BITS;
                if (1..=PROCESSES).contains(&field) {
                    return Some(field - 1);
                }
            }
            let process = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (process < MASKED).then_some(process)
        })
    }

    /// Whether the process is one of them.
    #[inline]
    pub fn has(self, process: usize) -> bool {
        self.processes().any(|one| one == process)
    }

    /// Whether it is the only one.
    #[inline]
    pub fn is_only(self, process: usize) -> bool {
        let mut processes = self.processes();
        processes.next() == Some(process) && processes.all(|one| one == process)
    }

    /// Whether the connection waits to be accepted, or its last holder is writing the end.
    #[inline]
    pub fn is_in_between(self) -> bool {
        self.0 & (QUEUED | CLOSING) != 0
    }

    /// With one more; None where the word has no room for it.
    pub fn with(self, process: usize) -> Option<Self> {
        if self.has(process) {
            return Some(self);
        }
        let named = name(self.processes().chain([process]))?;
        Some(Self(self.0 & (QUEUED | CLOSING) | named))
    }

    /// Without one.
    pub fn without(self, process: usize) -> Self {
        let named = name(self.processes().filter(|one| *one != process));
        Self(self.0 & (QUEUED | CLOSING) | named.unwrap_or(0))
    }
}

fn name(processes: impl Iterator<Item = usize> + Clone) -> Option<u64> {
    if processes.clone().all(|one| one < MASKED) {
        return Some(processes.fold(0, |word, one| word | 1 << one));
    }
    let mut word = LISTED;
    for (at, one) in processes.enumerate() {
        if at == FIELDS || one >= PROCESSES {
            return None;
        }
        word |= (one as u64 + 1) << (at * FIELD_BITS);
    }
    Some(word)
}

/// Enters one more holder, if the present ones are such that it `may`; false when not, or without room.
pub fn enter(word: &AtomicU64, process: usize, may: impl Fn(Holders) -> bool) -> bool {
    let mut now = word.load(Ordering::SeqCst);
    loop {
        let before = Holders(now);
        let next = before.with(process).filter(|_| may(before));
        let Some(next) = next else { return false };
        match word.compare_exchange(now, next.0, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return true,
            Err(other) => now = other,
        }
    }
}

/// Enters `process` in the place of holder `former`, in one step; false when that one is none, or without room.
pub fn replace(word: &AtomicU64, former: usize, process: usize) -> bool {
    let mut now = word.load(Ordering::SeqCst);
    loop {
        let before = Holders(now);
        let may = before.has(former) && !before.is_in_between();
        let next = before.without(former).with(process).filter(|_| may);
        let Some(next) = next else { return false };
        match word.compare_exchange(now, next.0, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return true,
            Err(other) => now = other,
        }
    }
}

/// Takes a holder away; true when it was the last. Its name then stays, with [`CLOSING`], until it has written
/// the end and [forgets](forget) it: a process that is killed in between is found by it.
pub fn leave(word: &AtomicU64, process: usize) -> bool {
    let mut now = word.load(Ordering::SeqCst);
    loop {
        let before = Holders(now);
        if now & QUEUED != 0 || !before.has(process) {
            return false;
        }
        let is_last = before.is_only(process);
        let next = if is_last {
            Holders::only(process).0 | CLOSING
        } else {
            before.without(process).0
        };
        match word.compare_exchange(now, next, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return is_last,
            Err(other) => now = other,
        }
    }
}

/// The second half: from now on the slot may be used again, so it may be another connection's by now.
pub fn forget(word: &AtomicU64, process: usize) {
    let last = Holders::only(process).0 | CLOSING;
    let _ = word.compare_exchange(last, 0, Ordering::SeqCst, Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(processes: &[usize]) -> Option<Holders> {
        let add = |word: Option<Holders>, one: &usize| word?.with(*one);
        processes.iter().fold(Some(Holders(0)), add)
    }

    #[test]
    fn a_set_is_what_was_put_in_whichever_way_it_came_about() {
        let sets: [&[usize]; 6] = [
            &[0],
            &[59],
            &[60],
            &[PROCESSES - 1],
            &[3, 700, 12, 60, 61, 0],
            &[1, 2, 3, 4, 5, 6, 7, 8, 59],
        ];
        for set in sets {
            let word = of(set).expect("room");
            let mut found: Vec<_> = word.processes().collect();
            let mut expected = set.to_vec();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected);
            assert!(set.iter().all(|one| word.has(*one)) && !word.has(30));
            let rest = set[1..].iter().fold(word, |word, one| word.without(*one));
            assert_eq!(rest, Holders::only(set[0]), "{set:?}");
            assert!(rest.is_only(set[0]) && !rest.is_in_between());
            assert_eq!(rest.without(set[0]), Holders(0));
        }
    }

    #[test]
    fn any_number_of_the_first_fit_and_six_of_all() {
        let first: Vec<usize> = (0..MASKED).collect();
        let all = of(&first).expect("room");
        assert_eq!(all.with(MASKED), None);
        assert_eq!(of(&[1, 2, 3, 4, 5, 60, 6]), None);
        assert_eq!(Holders(0).with(PROCESSES), None);
        assert_eq!(Holders::only(PROCESSES), Holders(0));
        // The marks stay.
        let waiting = Holders(QUEUED).with(300).expect("room");
        assert!(waiting.is_in_between() && waiting.has(300));
        assert_eq!(waiting.without(300), Holders(QUEUED));
    }

    #[test]
    fn one_takes_the_place_of_another_where_there_is_no_room_for_a_seventh() {
        let word = AtomicU64::new(of(&[3, 700, 12, 60, 61, 0]).expect("room").0);
        assert!(!enter(&word, 900, |_| true));
        assert!(!replace(&word, 901, 900));
        assert!(replace(&word, 12, 900));
        let now = Holders(word.load(Ordering::SeqCst));
        assert!(now.has(900) && !now.has(12) && now.processes().count() == 6);
        assert!(replace(&word, 900, 12));
        let first: Vec<usize> = (0..7).collect();
        let many = AtomicU64::new(of(&first).expect("room").0);
        assert!(!replace(&many, 3, MASKED) && replace(&many, 3, 8));
        let closing = AtomicU64::new(Holders::only(5).0 | CLOSING);
        assert!(!replace(&closing, 5, 6));
    }

    #[test]
    fn the_last_leaves_in_two_steps() {
        let word = AtomicU64::new(Holders::only(5).0);
        assert!(enter(&word, 80, |now| now.has(5)));
        assert!(!enter(&word, 81, |now| now.has(6)));
        assert!(!leave(&word, 5) && !leave(&word, 5));
        assert!(leave(&word, 80));
        // Killed here: who clears up after it does the same.
        assert!(!enter(&word, 81, |now| !now.is_in_between()));
        assert!(leave(&word, 80));
        forget(&word, 80);
        assert_eq!(word.load(Ordering::SeqCst), 0);
        let waiting = AtomicU64::new(QUEUED);
        assert!(!leave(&waiting, 0));
        forget(&waiting, 0);
        assert_eq!(waiting.load(Ordering::SeqCst), QUEUED);
    }

    #[test]
    fn every_word_has_an_end() {
        let mut dice = 1u64;
        for _ in 0..100_000 {
            dice ^= dice << 13;
            dice ^= dice >> 7;
            dice ^= dice << 17;
            for word in [dice, dice | LISTED, dice & !LISTED, u64::MAX] {
                let holders = Holders(word);
                assert!(holders.processes().count() <= MASKED);
                assert!(holders.processes().all(|one| one < PROCESSES));
                let one = dice as usize % PROCESSES;
                assert!(!holders.without(one).has(one));
                assert!(holders.with(one).is_none_or(|more| more.has(one)));
                let word = AtomicU64::new(word);
                let _ = (leave(&word, one), enter(&word, one, |_| true));
                forget(&word, one);
            }
        }
    }
}
