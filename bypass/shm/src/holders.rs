//! The processes that hold one end of a connection.
//!
//! Mostly that is one process, which a word names. Processes that share the end besides (children of fork, programs that
//! were started or were sent it) are in a set of their own, next to the word: more of them than one word has bits. The end
//! is over when the word names no process and the set is empty. As the set cannot be looked at in one step, the word has
//! a version, too:
//!
//! - A process is added to the set first, and then the version is changed, while another process holds the end.
//! - A process that leaves takes itself away, looks at the word and then at the set, and ends the connection only if the
//!   word is still the same. Had a process been added that the look at the set missed, the process that has added it
//!   either was still in the set, or the version is another one.
//!
//! A process may be killed at any point: it is then named by the word or by the set, or the set is empty and the word
//! says nothing else; whoever takes a dead process away ([`Holders::leave`]) thereby finds each of these.

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::layout::{ProcessSet, CLOSING, PROCESSES, QUEUED, SET_WORDS, SHARED};

/// Index, plus one, of the process that the word names; 0 for none.
const NAMED: u32 = 0x3ff;
/// Counts the changes of the set.
const VERSION: u32 = (SHARED - 1) & !NAMED;
const VERSION_STEP: u32 = NAMED + 1;
/// The other side could change the word forever. In good faith it changes once for each process at most.
const TRIES: usize = 2 * PROCESSES;

const _: () = assert!(PROCESSES < NAMED as usize && QUEUED > CLOSING && CLOSING > SHARED);

impl ProcessSet {
    fn place(&self, process: usize) -> (&AtomicU64, u64) {
        let bit = if process < PROCESSES {
            1 << (process / SET_WORDS)
        } else {
            0
        };
        (&self.0[process % SET_WORDS], bit)
    }

    /// Adds one.
    pub fn add(&self, process: usize) {
        let (word, bit) = self.place(process);
        word.fetch_or(bit, Ordering::SeqCst);
    }

    /// Takes one away.
    pub fn remove(&self, process: usize) {
        let (word, bit) = self.place(process);
        if word.load(Ordering::SeqCst) & bit != 0 {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Whether it has one.
    pub fn has(&self, process: usize) -> bool {
        let (word, bit) = self.place(process);
        word.load(Ordering::SeqCst) & bit != 0
    }

    /// Whether it has none; one that comes meanwhile may be missed.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|word| word.load(Ordering::SeqCst) == 0)
    }

    /// Takes all away.
    pub fn clear(&self) {
        for word in &self.0 {
            word.store(0, Ordering::SeqCst);
        }
    }

    fn each(&self) -> impl Iterator<Item = usize> + '_ {
        (0..PROCESSES).filter(|process| self.has(*process))
    }
}

/// See the module.
pub struct Holders<'a> {
    pub(crate) word: &'a AtomicU32,
    pub(crate) sharers: &'a ProcessSet,
}

impl Holders<'_> {
    fn load(&self) -> u32 {
        self.word.load(Ordering::SeqCst)
    }

    fn change(&self, now: u32, next: u32) -> bool {
        let changed = (self.word).compare_exchange(now, next, Ordering::SeqCst, Ordering::SeqCst);
        changed.is_ok()
    }

    /// The end is `process`'s alone, in a slot that no other process uses.
    pub fn start(&self, process: usize) {
        self.word.store(named(process), Ordering::SeqCst);
    }

    /// The end waits to be accepted, in a slot that no other process uses.
    pub fn queue(&self) {
        self.word.store(QUEUED, Ordering::SeqCst);
    }

    /// No process holds the end, whatever the other side has written.
    pub fn clear(&self) {
        self.word.store(0, Ordering::SeqCst);
    }

    /// Accepts the end for `process`, if it waits for that.
    pub fn accept(&self, process: usize) -> bool {
        self.change(QUEUED, named(process))
    }

    /// Takes an end back that waits to be accepted; false if it does not wait (any more).
    pub fn withdraw(&self) -> bool {
        self.change(QUEUED, 0)
    }

    /// Whether no process holds it and it does not wait.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.load() == 0
    }

    /// Whether it waits to be accepted.
    #[inline]
    pub fn is_queued(&self) -> bool {
        self.load() & QUEUED != 0
    }

    /// Whether its last holder is writing the end.
    pub fn is_closing(&self) -> bool {
        self.load() & CLOSING != 0
    }

    /// Whether processes hold it, none of which is writing the end.
    pub fn is_held(&self) -> bool {
        is_held(self.load())
    }

    /// Whether `process` holds it.
    pub fn has(&self, process: usize) -> bool {
        let now = self.load();
        now & QUEUED == 0 && self.has_in(now, process)
    }

    fn has_in(&self, now: u32, process: usize) -> bool {
        now & NAMED == named(process) || now & SHARED != 0 && self.sharers.has(process)
    }

    /// Whether only `process` holds it.
    pub fn has_only(&self, process: usize) -> bool {
        self.is_held() && self.has(process) && self.each().all(|holder| holder == process)
    }

    /// The processes that hold it.
    pub fn each(&self) -> impl Iterator<Item = usize> + '_ {
        let now = self.load();
        let is_known = now & QUEUED == 0;
        let named = (now & NAMED).checked_sub(1).map(|named| named as usize);
        let sharers = (now & SHARED != 0).then(|| self.sharers.each());
        let all = named.into_iter().chain(sharers.into_iter().flatten());
        all.filter(move |process| is_known && *process < PROCESSES)
    }

    /// The processes that hold it, a bit for each; None if one of them is not among the first 32, or none holds it.
    #[inline]
    pub fn mask(&self) -> Option<u32> {
        let now = self.load();
        let bit = |process: usize| (process < 32).then(|| 1u32 << process);
        if !is_held(now) {
            return None;
        }
        if now & SHARED == 0 {
            return bit((now & NAMED).checked_sub(1)? as usize);
        }
        let mut all = self.each();
        all.try_fold(0, |mask, process| Some(mask | bit(process)?))
    }

    /// `process` shares the end from now on, on behalf of holder `by`, or of any. False if that does not hold it (any
    /// more): the caller then makes it [`retract`](Self::retract), as others may have seen it here.
    pub fn share(&self, by: Option<usize>, process: usize) -> bool {
        for _ in 0..TRIES {
            let now = self.load();
            if !is_held(now) || by.is_some_and(|by| !self.has_in(now, by)) {
                break;
            }
            self.sharers.add(process);
            let version = now.wrapping_add(VERSION_STEP) & VERSION;
            if self.change(now, now & NAMED | SHARED | version) {
                return true;
            }
        }
        self.sharers.remove(process);
        false
    }

    /// `process` holds the end no more. True when it was the last: it then writes the end of the connection and calls
    /// [`end`](Self::end). True as well when it was killed in between.
    pub fn leave(&self, process: usize) -> bool {
        self.load() == CLOSING | named(process) || self.retract(process)
    }

    /// `process`, which could not [`share`](Self::share) the end, does not hold it. True as from [`leave`](Self::leave): the
    /// last holder has left it to this one.
    pub fn retract(&self, process: usize) -> bool {
        let own = named(process);
        if self.load() & SHARED != 0 {
            self.sharers.remove(process);
        }
        for _ in 0..TRIES {
            let now = self.load();
            let (name, is_shared) = (now & NAMED, now & SHARED != 0);
            if !is_held(now) || name != own && (name != 0 || !is_shared) {
                return false;
            }
            let has_others = is_shared && !self.sharers.is_empty();
            if !has_others {
                if self.change(now, CLOSING | own) {
                    return true;
                }
            } else if name == 0 {
                return false;
            } else {
                // Then once more: those others may have left while this one was still named.
                self.change(now, now & !NAMED);
            }
        }
        false
    }

    /// The end of the connection is written: from now on the slot may be used again.
    pub fn end(&self, process: usize) {
        self.change(CLOSING | named(process), 0);
    }

    /// Takes all away that were killed after they had been put into the set, and before the end was shared. For a slot
    /// that no process uses.
    pub fn forget_sharers(&self) {
        if !self.sharers.is_empty() {
            self.sharers.clear();
        }
    }
}

/// A process without a place holds nothing: a name that none has.
fn named(process: usize) -> u32 {
    process.min(PROCESSES) as u32 + 1
}

fn is_held(word: u32) -> bool {
    word != 0 && word & (QUEUED | CLOSING) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    struct End(AtomicU32, ProcessSet);

    impl End {
        fn new() -> Self {
            Self(
                AtomicU32::new(0),
                ProcessSet(std::array::from_fn(|_| AtomicU64::new(0))),
            )
        }

        fn holders(&self) -> Holders<'_> {
            Holders {
                word: &self.0,
                sharers: &self.1,
            }
        }
    }

    #[test]
    fn the_last_of_all_processes_ends_it() {
        let end = End::new();
        let holders = end.holders();
        holders.queue();
        assert!(holders.accept(300) && !holders.accept(301));
        for process in (0..PROCESSES).filter(|process| *process != 300) {
            assert!(holders.share(Some(300), process));
        }
        assert_eq!(holders.each().count(), PROCESSES);
        for process in 0..PROCESSES - 1 {
            assert!(!holders.leave(process), "{process}");
        }
        assert!(holders.has_only(PROCESSES - 1));
        assert!(holders.leave(PROCESSES - 1) && holders.is_closing());
        holders.end(PROCESSES - 1);
        assert!(holders.is_over());
    }

    #[test]
    fn only_a_holder_can_share_it() {
        let end = End::new();
        let holders = end.holders();
        assert!(!holders.share(None, 2));
        holders.queue();
        assert!(!holders.share(None, 2) && !holders.leave(2) && !holders.has(0));
        assert!(holders.accept(1));
        assert!(!holders.share(Some(2), 3) && holders.share(Some(1), 2));
        assert!(!holders.leave(1) && holders.share(Some(2), 3));
        assert!(!holders.leave(2) && holders.leave(3));
        assert!(!holders.share(None, 4) && !holders.leave(4));
    }

    #[test]
    fn a_process_that_was_killed_as_it_left_is_found() {
        let end = End::new();
        let holders = end.holders();
        holders.start(5);
        assert!(holders.share(Some(5), 6) && !holders.leave(5));
        // Killed between its two steps.
        end.1.remove(6);
        assert!(holders.leave(6) && holders.leave(6));
        assert!(!holders.leave(7));
        holders.end(6);
        assert!(!holders.leave(6));
    }

    #[test]
    fn a_process_that_comes_back_holds_it_once() {
        let end = End::new();
        let holders = end.holders();
        holders.start(1);
        assert!(holders.share(None, 1) && holders.has_only(1));
        assert!(holders.leave(1));
    }

    #[test]
    fn a_mask_has_room_for_the_first_processes() {
        let end = End::new();
        let holders = end.holders();
        assert_eq!(holders.mask(), None);
        holders.start(3);
        assert_eq!(holders.mask(), Some(8));
        assert!(holders.share(None, 40));
        assert_eq!(holders.mask(), None);
        assert!(!holders.leave(40) && holders.share(None, 4));
        assert_eq!(holders.mask(), Some(24));
        assert!(!holders.leave(3));
        assert_eq!(holders.mask(), Some(16));
    }

    #[test]
    fn words_of_any_value_end_every_call() {
        let end = End::new();
        let holders = end.holders();
        let words = (0..32).flat_map(|bit| [1u32 << bit, u32::MAX << bit, u32::MAX >> bit]);
        for word in words {
            end.0.store(word, Ordering::SeqCst);
            end.1.add(511);
            let _ = (holders.each().count(), holders.has_only(9));
            let _ = (holders.mask(), holders.share(None, 9));
            let _ = (holders.leave(9), holders.leave(511));
            holders.end(9);
        }
    }
}
