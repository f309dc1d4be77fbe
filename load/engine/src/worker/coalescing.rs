//! Coalesced waiting: a short pause before a wait that would find little.
//!
//! Where the server is the limit, a closed loop sleeps for each few answers, and the server pays for
//! each wake-up. A pause lets more answers gather, and the generator is awake when they come. It is
//! short compared with the time that answers take: at most a tenth of it.

use crate::ending::Pauses;
use crate::sys::clock::monotonic_ns;
use std::time::Duration;

/// Longest pause; in it a fast server gives several answers, and a slow one one in two.
const PAUSE_MAX_NS: u64 = 20_000;
/// A shorter one gathers too little.
const PAUSE_MIN_NS: u64 = 5_000;
/// An answer takes so many pauses at least.
const ANSWER_PAUSES: u64 = 10;
/// So many requests must be outstanding for each event that the last wait has found.
const OUTSTANDING_PER_EVENT: usize = 4;
/// A wait that finds so many costs each of them too little to save anything by a pause.
const FOUND_ENOUGH: usize = 32;
/// With fewer connections a pause is most of what an answer takes.
const OUTSTANDING_MIN: usize = 16;
/// A rate is taken over at least so long a time.
const STRETCH_NS: u64 = 50_000_000;
/// Looks at the processor's hint between two looks at the clock.
const HINTS: usize = 8;

/// Decides before each wait of a thread.
#[derive(Debug, Default)]
pub struct Coalescing {
    /// Length of a pause at the present rate; 0 if there shall be none.
    pause_ns: u64,
    /// Pauses are slept, not spun: where the answers of several streams gather in one read, that
    /// saves more of this core than it costs of the rate.
    sleeps: bool,
    found: usize,
    marked_ns: u64,
    marked_answers: u64,
    /// The waits and pauses so far.
    pub pauses: Pauses,
}

impl Coalescing {
    /// For connections with so many streams.
    pub fn new(streams: usize) -> Coalescing {
        Coalescing {
            sleeps: streams > 1,
            ..Coalescing::default()
        }
    }

    /// Chooses the length of pauses from what has been answered since the last time.
    pub fn adapt(&mut self, now: u64, answers: u64, outstanding: usize) {
        let elapsed_ns = now.saturating_sub(self.marked_ns);
        let is_same_count = answers >= self.marked_answers;
        if is_same_count && elapsed_ns < STRETCH_NS {
            return;
        }
        // counts begin again with each interval; the choice holds on for a stretch then
        if is_same_count {
            let more = answers - self.marked_answers;
            self.pause_ns = pause_ns(elapsed_ns, more, outstanding);
        }
        (self.marked_ns, self.marked_answers) = (now, answers);
    }

    /// Events of the last wait.
    #[inline]
    pub fn note_found(&mut self, events: usize) {
        self.found = events;
        self.pauses.waits += 1;
    }

    /// Pauses if it pays; when it began to, if it did.
    #[inline]
    pub fn pause(&mut self, outstanding: usize) -> Option<u64> {
        let few = self.found < FOUND_ENOUGH && self.found * OUTSTANDING_PER_EVENT <= outstanding;
        if self.pause_ns == 0 || !few || outstanding < OUTSTANDING_MIN {
            return None;
        }
        let began_ns = monotonic_ns();
        if self.sleeps {
            std::thread::sleep(Duration::from_nanos(self.pause_ns));
        } else {
            // a server on the same core goes first
            std::thread::yield_now();
        }
        let mut now = monotonic_ns();
        while now < began_ns + self.pause_ns {
            (0..HINTS).for_each(|_| std::hint::spin_loop());
            now = monotonic_ns();
        }
        self.pauses.paused += 1;
        self.pauses.paused_ns += now - began_ns;
        Some(began_ns)
    }
}

/// The pause for so many answers in a time, with so many requests outstanding; 0 for none.
fn pause_ns(elapsed_ns: u64, answers: u64, outstanding: usize) -> u64 {
    if answers == 0 {
        return 0;
    }
    let between_ns = elapsed_ns / answers;
    // N = X·R: an answer takes as long as it takes to answer all that are outstanding
    let answer_ns = between_ns * outstanding as u64;
    let pause_ns = (answer_ns / ANSWER_PAUSES).min(PAUSE_MAX_NS);
    if pause_ns < PAUSE_MIN_NS || between_ns > 2 * pause_ns {
        return 0;
    }
    pause_ns
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn pauses_are_shorter_than_an_answer_and_long_enough_to_gather_some() {
        // 50 connections at 200,000/s: 250 us each
        assert_eq!(pause_ns(SECOND_NS, 200_000, 50), 20_000);
        // at 400,000/s 125 us each
        assert_eq!(pause_ns(SECOND_NS, 400_000, 50), 12_500);
        // a user-level stack, too fast for any pause
        assert_eq!(pause_ns(SECOND_NS, 1_000_000, 20), 0);
        // a server that takes its time: nothing would gather
        assert_eq!(pause_ns(SECOND_NS, 10_000, 1000), 0);
        assert_eq!(pause_ns(SECOND_NS, 0, 1000), 0);
    }

    #[test]
    fn only_a_wait_that_found_little_is_followed_by_a_pause() {
        let mut coalescing = Coalescing::default();
        assert_eq!(coalescing.pause(50), None, "nothing is known yet");
        coalescing.adapt(0, 0, 50);
        coalescing.adapt(SECOND_NS / 10, 20_000, 50);
        coalescing.note_found(13);
        assert_eq!(coalescing.pause(50), None, "a quarter of all at once");
        coalescing.note_found(40);
        assert_eq!(coalescing.pause(1000), None, "enough for one wait");
        coalescing.note_found(2);
        let began_ns = coalescing.pause(50).expect("a pause");
        assert!(monotonic_ns() - began_ns >= 20_000);
        assert_eq!(coalescing.pause(15), None, "too few outstanding");
        let pauses = coalescing.pauses;
        assert_eq!((pauses.waits, pauses.paused), (3, 1));
        assert!(pauses.paused_ns >= 20_000);
    }

    #[test]
    fn the_choice_holds_on_where_counts_begin_again() {
        let mut coalescing = Coalescing::default();
        coalescing.adapt(SECOND_NS, 0, 50);
        coalescing.adapt(2 * SECOND_NS, 200_000, 50);
        assert_eq!(coalescing.pause_ns, 20_000);
        coalescing.adapt(2 * SECOND_NS + STRETCH_NS, 10, 50);
        assert_eq!(coalescing.pause_ns, 20_000);
        coalescing.adapt(2 * SECOND_NS + STRETCH_NS + 1_000, 10, 50);
        assert_eq!(coalescing.pause_ns, 20_000, "too soon to change");
        coalescing.adapt(3 * SECOND_NS, 20, 50);
        assert_eq!(coalescing.pause_ns, 0);
    }
}
