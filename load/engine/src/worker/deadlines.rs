//! What a thread has to do at a time of its own, not when an event comes: timers of connections, the
//! search for timeouts, samples of TCP.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Longest time between two checks.
pub(super) const CHECK_NS: u64 = 100_000_000;
/// So many requests in flight are checked for timeouts in a row: some 50 us.
const SCANNED_AT_ONCE: usize = 4096;
/// Shortest time between two looks.
const SCAN_PAUSE_NS: u64 = 1_000_000;

/// Connections with times, the earliest first: time, number, generation.
type Timers = BinaryHeap<Reverse<(u64, u32, u32)>>;

/// When this thread's next check is due, and what is due then.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    /// The next check: the earliest of everything below, at most [`CHECK_NS`] away.
    pub next_check_ns: u64,
    /// Connections to open or to send on later.
    timers: Timers,
    /// Connections whose protocol has to act at a time.
    wakes: Timers,
    next_scan_ns: u64,
    /// The connection whose timeout is looked at next.
    next_scanned: usize,
    next_tcp_sample_ns: u64,
    /// The connection whose TCP was looked at last.
    tcp_sampled: usize,
}

impl Deadlines {
    /// A connection shall be looked at again, unless it is another one by then.
    pub fn set_timer(&mut self, at_ns: u64, index: usize, generation: u32) {
        self.timers.push(Reverse((at_ns, index as u32, generation)));
        self.next_check_ns = self.next_check_ns.min(at_ns);
    }

    /// The number and the generation of a timer that has come.
    pub fn pop_timer(&mut self, now: u64) -> Option<(u32, u32)> {
        let (_, index, generation) = pop(&mut self.timers, now)?;
        Some((index, generation))
    }

    /// The protocol of a connection has to act, unless it is another connection by then.
    pub fn set_wake(&mut self, at_ns: u64, index: usize, generation: u32) {
        self.wakes.push(Reverse((at_ns, index as u32, generation)));
        self.next_check_ns = self.next_check_ns.min(at_ns);
    }

    /// How many protocols have to act at a time.
    pub fn wakes(&self) -> usize {
        self.wakes.len()
    }

    /// A connection whose protocol has to act now: since when, its number, its generation.
    pub fn pop_wake(&mut self, now: u64) -> Option<(u64, u32, u32)> {
        pop(&mut self.wakes, now)
    }

    /// Whether a connection's TCP shall be looked at now; the next time is some way off then.
    pub fn wants_tcp_sample(&mut self, now: u64) -> bool {
        let wants = now >= self.next_tcp_sample_ns;
        if wants {
            self.next_tcp_sample_ns = now + CHECK_NS;
        }
        wants
    }

    /// The connection out of `wanted` whose TCP is looked at next.
    pub fn next_tcp_sampled(&mut self, wanted: usize) -> usize {
        self.tcp_sampled = (self.tcp_sampled + 1) % wanted;
        self.tcp_sampled
    }

    /// The connections whose timeouts shall be looked at now, if it is time: of `count` with so many
    /// streams each. Of many some are looked at each time, so that none of these looks makes a request
    /// late. (A queue in the order of sending would find them without a search, and would cost each
    /// request a push.)
    pub fn next_scan(&mut self, now: u64, count: usize, streams: usize) -> Option<Range<usize>> {
        if now < self.next_scan_ns {
            return None;
        }
        let first = self.next_scanned;
        let last = count.min(first + (SCANNED_AT_ONCE / streams).max(1));
        self.next_scanned = if last < count { last } else { 0 };
        Some(first..last)
    }

    /// The look that began at `now` is over; requests may wait for so long at least.
    pub fn note_scanned(&mut self, now: u64, shortest_timeout_ns: u64) {
        let pause_ns = if self.next_scanned > 0 {
            SCAN_PAUSE_NS
        } else {
            (shortest_timeout_ns / 8).clamp(SCAN_PAUSE_NS, CHECK_NS)
        };
        self.next_scan_ns = now + pause_ns;
    }

    /// A check at `now` is over; the interval being filled ends at `interval_end_ns`.
    pub fn set_next_check(&mut self, now: u64, interval_end_ns: u64) {
        let first = |timers: &Timers| timers.peek().map_or(u64::MAX, |next| next.0 .0);
        let timer_ns = first(&self.timers).min(first(&self.wakes));
        self.next_check_ns = (now + CHECK_NS)
            .min(self.next_scan_ns)
            .min(interval_end_ns)
            .min(timer_ns);
    }
}

/// The first entry, if its time has come.
fn pop(timers: &mut Timers, now: u64) -> Option<(u64, u32, u32)> {
    let Reverse(first) = *timers.peek().filter(|next| next.0 .0 <= now)?;
    timers.pop();
    Some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_connections_are_scanned_in_parts_and_each_of_them_once_a_round() {
        let (count, streams, timeout_ns) = (10_000, 2, 2_000_000_000);
        let mut deadlines = Deadlines::default();
        let (mut now, mut scanned) = (1, Vec::new());
        while scanned.len() < count {
            let some = deadlines
                .next_scan(now, count, streams)
                .expect("it is time");
            assert!(some.len() * streams <= SCANNED_AT_ONCE);
            scanned.extend(some);
            deadlines.note_scanned(now, timeout_ns);
            deadlines.set_next_check(now, u64::MAX);
            let is_round_over = scanned.len() == count;
            let pause_ns = if is_round_over {
                CHECK_NS
            } else {
                SCAN_PAUSE_NS
            };
            assert_eq!(deadlines.next_check_ns, now + pause_ns);
            now += pause_ns;
        }
        assert!(scanned.into_iter().eq(0..count));
        assert_eq!(deadlines.next_scan(now - 1, count, streams), None);
    }

    #[test]
    fn the_next_check_comes_no_later_than_a_timer() {
        let mut deadlines = Deadlines::default();
        deadlines.set_next_check(0, u64::MAX);
        deadlines.set_timer(70, 7, 1);
        deadlines.set_timer(50, 5, 1);
        assert_eq!(deadlines.next_check_ns, 0, "nothing has been scanned yet");
        deadlines.note_scanned(0, u64::MAX);
        deadlines.set_next_check(0, u64::MAX);
        assert_eq!(deadlines.next_check_ns, 50);
        assert_eq!(deadlines.pop_timer(49), None);
        assert_eq!(deadlines.pop_timer(60), Some((5, 1)));
        assert_eq!(deadlines.pop_timer(60), None);
        deadlines.set_wake(40, 9, 2);
        assert_eq!(deadlines.next_check_ns, 40);
        deadlines.set_next_check(30, u64::MAX);
        assert_eq!(deadlines.next_check_ns, 40);
        assert_eq!(deadlines.pop_wake(39), None);
        assert_eq!(deadlines.pop_wake(45), Some((40, 9, 2)));
        deadlines.set_next_check(45, u64::MAX);
        assert_eq!(deadlines.next_check_ns, 70, "the other timer");
    }
}
