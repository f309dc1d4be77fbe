//! Coalesced waiting: a short sleep before a wait that would find little.
//!
//! Where the server is the limit, a closed loop sleeps for each few answers, and the server pays for
//! each wake-up. In a pause more answers gather, and a timer of this core ends it, which costs the server
//! nothing. It is slept, as a sleep for many answers takes less of this core than spinning. With the time
//! that the wake-up takes, it is short compared with the time that answers take: at most a tenth of it on
//! average.

use crate::ending::Pauses;
use crate::sys::clock::monotonic_ns;
use std::time::Duration;

/// Longest sleep that is asked for; in it a fast server gives several answers, and a slow one one in two.
const SLEEP_MAX_NS: u64 = 20_000;
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

/// Decides before each wait of a thread.
#[derive(Debug, Default)]
pub struct Coalescing {
    /// The sleep that is asked for at the present rate; 0 if there shall be none.
    sleep_ns: u64,
    /// How much longer sleeps take: until the timer has woken this thread.
    late_ns: u64,
    found: usize,
    marked_ns: u64,
    marked_answers: u64,
    /// The pauses since then, and their length together.
    marked_pauses: (u64, u64),
    /// The waits and pauses so far.
    pub pauses: Pauses,
}

impl Coalescing {
    /// The measured window begins: waits and pauses before it do not count.
    pub fn begin_window(&mut self) {
        self.pauses = Pauses::default();
    }

    /// Chooses the length of pauses from what has been answered since the last time.
    pub fn adapt(&mut self, now: u64, answers: u64, outstanding: usize) {
        let elapsed_ns = now.saturating_sub(self.marked_ns);
        let is_same_count = answers >= self.marked_answers;
        if is_same_count && elapsed_ns < STRETCH_NS {
            return;
        }
        self.note_late();
        // counts begin again with each interval; the choice holds on for a stretch then
        if is_same_count {
            let more = answers - self.marked_answers;
            self.sleep_ns = sleep_ns(elapsed_ns, more, outstanding, self.late_ns);
        }
        (self.marked_ns, self.marked_answers) = (now, answers);
    }

    /// Learns how late timers wake this thread. Where that has ended the pauses, they are tried again after
    /// a while.
    fn note_late(&mut self) {
        let (count, length_ns) = std::mem::take(&mut self.marked_pauses);
        self.late_ns = match length_ns.checked_div(count) {
            Some(mean_ns) => mean_ns.saturating_sub(self.sleep_ns),
            None => self.late_ns / 2,
        };
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
        if self.sleep_ns == 0 || !few || outstanding < OUTSTANDING_MIN {
            return None;
        }
        let began_ns = monotonic_ns();
        std::thread::sleep(Duration::from_nanos(self.sleep_ns));
        let took_ns = monotonic_ns() - began_ns;
        self.marked_pauses.0 += 1;
        self.marked_pauses.1 += took_ns;
        self.pauses.paused += 1;
        self.pauses.paused_ns += took_ns;
        Some(began_ns)
    }
}

/// The sleep to ask for at so many answers in a time, with so many requests outstanding, where it takes
/// `late_ns` more; 0 for none.
fn sleep_ns(elapsed_ns: u64, answers: u64, outstanding: usize, late_ns: u64) -> u64 {
    if answers == 0 {
        return 0;
    }
    let between_ns = elapsed_ns / answers;
    // N = X·R: an answer takes as long as it takes to answer all that are outstanding
    let answer_ns = between_ns * outstanding as u64;
    let longest_ns = answer_ns / ANSWER_PAUSES;
    let pause_ns = longest_ns.min(SLEEP_MAX_NS);
    if pause_ns < PAUSE_MIN_NS || between_ns > 2 * pause_ns {
        return 0;
    }
    longest_ns.saturating_sub(late_ns).min(SLEEP_MAX_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn pauses_are_shorter_than_an_answer_and_long_enough_to_gather_some() {
        // 50 connections at 200,000/s: 250 us each
        assert_eq!(sleep_ns(SECOND_NS, 200_000, 50, 0), 20_000);
        // at 400,000/s 125 us each
        assert_eq!(sleep_ns(SECOND_NS, 400_000, 50, 0), 12_500);
        // a user-level stack, too fast for any pause
        assert_eq!(sleep_ns(SECOND_NS, 1_000_000, 20, 0), 0);
        // a server that takes its time: nothing would gather
        assert_eq!(sleep_ns(SECOND_NS, 10_000, 1000, 0), 0);
        assert_eq!(sleep_ns(SECOND_NS, 0, 1000, 0), 0);
    }

    #[test]
    fn the_time_of_the_wake_up_is_a_part_of_the_pause() {
        assert_eq!(sleep_ns(SECOND_NS, 200_000, 50, 15_000), 10_000);
        // a tenth of 250 us, and nothing would be left to sleep
        assert_eq!(sleep_ns(SECOND_NS, 200_000, 50, 25_000), 0);
        // an answer takes 5 ms: as long as ever
        assert_eq!(sleep_ns(SECOND_NS, 200_000, 1000, 60_000), 20_000);
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
        coalescing.begin_window();
        assert_eq!(coalescing.pauses, Pauses::default());
    }

    #[test]
    fn pauses_that_end_late_are_asked_for_sooner_and_tried_again_after_a_time_without() {
        let mut coalescing = Coalescing::default();
        let mut second = |pauses: u64, length_ns: u64| {
            coalescing.marked_pauses = (pauses, pauses * length_ns);
            coalescing.marked_answers = 0;
            let now = coalescing.marked_ns + SECOND_NS;
            coalescing.adapt(now, 200_000, 50);
            coalescing.sleep_ns
        };
        assert_eq!(second(0, 0), 20_000, "nothing is known of timers");
        assert_eq!(second(1000, 32_000), 13_000, "12 us late");
        assert_eq!(second(1000, 25_000), 13_000, "a tenth of 250 us");
        assert_eq!(second(1000, 73_000), 0, "60 us late");
        assert_eq!(second(0, 0), 0, "30 us");
        assert_eq!(second(0, 0), 10_000, "15 us");
    }

    #[test]
    fn the_choice_holds_on_where_counts_begin_again() {
        let mut coalescing = Coalescing::default();
        coalescing.adapt(SECOND_NS, 0, 50);
        coalescing.adapt(2 * SECOND_NS, 200_000, 50);
        assert_eq!(coalescing.sleep_ns, 20_000);
        coalescing.adapt(2 * SECOND_NS + STRETCH_NS, 10, 50);
        assert_eq!(coalescing.sleep_ns, 20_000);
        coalescing.adapt(2 * SECOND_NS + STRETCH_NS + 1_000, 10, 50);
        assert_eq!(coalescing.sleep_ns, 20_000, "too soon to change");
        coalescing.adapt(3 * SECOND_NS, 20, 50);
        assert_eq!(coalescing.sleep_ns, 0);
    }
}
