//! When each request of an open loop is due: arithmetic on its number, no clock, no drift.
//!
//! The load is a curve of rates over time; Λ(t) is the number of requests due until t, and request
//! k is due where Λ(t) = k, solved in closed form. Thread j of T has the requests k·T + j. A
//! Poisson process replaces the steps of 1 by exponential ones.

use crate::random::Random;
use std::sync::Arc;

/// Most requests that are counted: beyond it two numbers of requests may be the same f64.
const COUNT_MAX: u64 = 1 << f64::MANTISSA_DIGITS;

/// A stretch of time in which the rate changes linearly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// Length.
    pub length_ns: u64,
    /// Requests per second at its start.
    pub from_rps: f64,
    /// Requests per second at its end.
    pub to_rps: f64,
}

/// The rate over the whole run, from its first moment.
#[derive(Clone, Debug)]
pub struct Curve {
    parts: Vec<Part>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    start_ns: f64,
    length_ns: f64,
    /// Requests per nanosecond at the start and at the end.
    from: f64,
    to: f64,
    /// Λ at the start.
    before: f64,
    /// Requests due in it.
    count: f64,
}

impl Stretch {
    /// Requests due in it.
    fn count(&self) -> f64 {
        whole((self.from_rps + self.to_rps) / 2.0 * self.length_ns as f64 / 1e9)
    }
}

/// What is a whole number of requests but for rounding is one: at 1/s for 30 s none is due at the end
/// of the last second.
fn whole(count: f64) -> f64 {
    let near = count.round();
    let is_near = (count - near).abs() <= near * 8.0 * f64::EPSILON;
    if is_near {
        near
    } else {
        count
    }
}

impl Part {
    /// Λ at the end.
    fn until(&self) -> f64 {
        self.before + self.count
    }

    /// Solves before + from·t + (to - from)·t²/(2·length) = `lambda` for t.
    fn time_at(&self, lambda: f64) -> f64 {
        let count = lambda - self.before;
        if count <= 0.0 {
            // a rate of 0 at the start has no other answer
            return self.start_ns;
        }
        let slope = (self.to - self.from) / self.length_ns;
        if slope == 0.0 {
            return self.start_ns + count / self.from;
        }
        // the form of the root that does not cancel for small slopes
        let root = (self.from * self.from + 2.0 * slope * count)
            .max(0.0)
            .sqrt();
        self.start_ns + 2.0 * count / (self.from + root)
    }
}

impl Curve {
    /// Joins stretches; empty ones are left out.
    pub fn new(stretches: &[Stretch]) -> Curve {
        let mut parts: Vec<Part> = Vec::new();
        let (mut start_ns, mut before) = (0.0, 0.0);
        for stretch in stretches.iter().filter(|stretch| stretch.length_ns > 0) {
            let part = Part {
                start_ns,
                length_ns: stretch.length_ns as f64,
                from: stretch.from_rps / 1e9,
                to: stretch.to_rps / 1e9,
                before,
                count: stretch.count(),
            };
            start_ns += part.length_ns;
            before = part.until();
            parts.push(part);
        }
        Curve { parts }
    }

    /// Requests due in the whole run.
    pub fn total(&self) -> f64 {
        self.parts.last().map_or(0.0, Part::until)
    }

    /// Λ at a time.
    pub fn count_until(&self, time_ns: f64) -> f64 {
        self.parts
            .iter()
            .map(|part| {
                let t = (time_ns - part.start_ns).clamp(0.0, part.length_ns);
                part.from * t + (part.to - part.from) * t * t / (2.0 * part.length_ns)
            })
            .sum()
    }
}

/// The due times of one thread, one after the other.
#[derive(Clone, Debug)]
pub struct Schedule {
    curve: Curve,
    part: usize,
    /// Λ of the next request.
    lambda: f64,
    /// Number of the next request over all threads (even arrivals only).
    number: u64,
    threads: u64,
    random: Option<Random>,
    /// Due times that do not follow from the curve.
    recorded: Option<Arc<[u64]>>,
}

impl Schedule {
    /// Evenly spaced requests: those of thread `thread` out of `threads`.
    pub fn even(curve: Curve, thread: usize, threads: usize) -> Schedule {
        let number = thread as u64;
        Schedule {
            curve,
            part: 0,
            lambda: number as f64,
            number,
            threads: threads as u64,
            random: None,
            recorded: None,
        }
    }

    /// The due times of a list, in ascending order: those of thread `thread` out of `threads`.
    pub fn recorded(times_ns: Arc<[u64]>, thread: usize, threads: usize) -> Schedule {
        Schedule {
            recorded: Some(times_ns),
            ..Schedule::even(Curve::new(&[]), thread, threads)
        }
    }

    /// A Poisson process whose rate is this thread's share of the curve.
    pub fn poisson(curve: Curve, thread: usize, threads: usize, seed: u64) -> Schedule {
        let mut random = Random::new(seed ^ (thread as u64).wrapping_mul(0x5851_f42d_4c95_7f2d));
        let lambda = random.exponential() * threads as f64;
        Schedule {
            curve,
            part: 0,
            lambda,
            number: 0,
            threads: threads as u64,
            random: Some(random),
            recorded: None,
        }
    }

    /// When the next request is due, in ns from the start; `None` after the end of the curve.
    pub fn next_ns(&mut self) -> Option<u64> {
        if let Some(times_ns) = &self.recorded {
            return times_ns.get(self.number as usize).copied();
        }
        loop {
            let part = self.curve.parts.get(self.part)?;
            if self.lambda < part.until() {
                return Some(part.time_at(self.lambda).round() as u64);
            }
            self.part += 1;
        }
    }

    /// Goes on to the request after.
    pub fn advance(&mut self) {
        match &mut self.random {
            None => {
                self.number += self.threads;
                self.lambda = self.number as f64;
            }
            Some(random) => self.lambda += random.exponential() * self.threads as f64,
        }
    }

    /// How many of this thread's requests from the next one on are due before `time_ns`; under
    /// Poisson arrivals the expected number.
    pub fn left_until(&self, time_ns: f64) -> u64 {
        if let Some(times_ns) = &self.recorded {
            let due = times_ns.partition_point(|due_ns| (*due_ns as f64) < time_ns) as u64;
            return due.saturating_sub(self.number).div_ceil(self.threads);
        }
        let left = whole(self.curve.count_until(time_ns)) - self.lambda;
        if left <= 0.0 {
            return 0;
        }
        ((left / self.threads as f64).ceil() as u64).min(COUNT_MAX)
    }

    /// The due time of the request that is `ahead` after the next one, for large backlogs.
    pub fn ahead_ns(&self, ahead: u64) -> Option<u64> {
        if let Some(times_ns) = &self.recorded {
            let number = self.number + ahead * self.threads;
            return times_ns.get(number as usize).copied();
        }
        let lambda = self.lambda + ahead as f64 * self.threads as f64;
        let part = self.curve.parts.iter().find(|part| lambda < part.until())?;
        Some(part.time_at(lambda).round() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn constant(rps: f64, length_ns: u64) -> Curve {
        Curve::new(&[Stretch {
            length_ns,
            from_rps: rps,
            to_rps: rps,
        }])
    }

    fn all(mut schedule: Schedule) -> Vec<u64> {
        let mut due = Vec::new();
        while let Some(next) = schedule.next_ns() {
            due.push(next);
            schedule.advance();
        }
        due
    }

    #[test]
    fn recorded_times_are_dealt_to_the_threads_in_turn() {
        let times: Arc<[u64]> = [0, 5, 5, 9, 20].into();
        let of = |thread| Schedule::recorded(Arc::clone(&times), thread, 2);
        assert_eq!(all(of(0)), [0, 5, 20]);
        assert_eq!(all(of(1)), [5, 9]);
        assert_eq!((of(0).left_until(20.0), of(1).left_until(9.5)), (2, 2));
        assert_eq!((of(0).ahead_ns(2), of(1).ahead_ns(2)), (Some(20), None));
    }

    #[test]
    fn a_constant_rate_is_exact_from_the_first_request() {
        let due = all(Schedule::even(constant(4.0, SECOND_NS), 0, 1));
        assert_eq!(due, [0, 250_000_000, 500_000_000, 750_000_000]);
    }

    #[test]
    fn whole_seconds_of_a_whole_rate_have_their_product() {
        for rps in (1..200u32).chain([997, 1234, 12_345, 99_999]) {
            for seconds in [1, 2, 3, 7, 13, 30, 60] {
                let curve = constant(f64::from(rps), seconds * SECOND_NS);
                let total = u64::from(rps) * seconds;
                let mut schedule = Schedule::even(curve, 0, 1);
                assert_eq!(schedule.left_until((seconds * SECOND_NS) as f64), total);
                schedule.number = total - 1;
                schedule.lambda = schedule.number as f64;
                let last = schedule.next_ns().expect("the last one");
                assert!(
                    last < seconds * SECOND_NS,
                    "{rps}/s for {seconds} s: {last}"
                );
                schedule.advance();
                assert_eq!(schedule.next_ns(), None, "{rps}/s for {seconds} s");
            }
        }
    }

    #[test]
    fn threads_share_the_requests_without_gap_or_overlap() {
        let mut both = all(Schedule::even(constant(1000.0, SECOND_NS), 0, 3));
        both.extend(all(Schedule::even(constant(1000.0, SECOND_NS), 1, 3)));
        both.extend(all(Schedule::even(constant(1000.0, SECOND_NS), 2, 3)));
        both.sort_unstable();
        assert_eq!(both, all(Schedule::even(constant(1000.0, SECOND_NS), 0, 1)));
    }

    #[test]
    fn times_are_exact_after_an_hour() {
        let mut schedule = Schedule::even(constant(30_000.0, 3600 * SECOND_NS), 0, 1);
        schedule.number = 30_000 * 3599;
        schedule.lambda = schedule.number as f64;
        let due = schedule.next_ns().expect("within the hour");
        assert!(due.abs_diff(3599 * SECOND_NS) <= 1, "{due}");
    }

    #[test]
    fn a_ramp_sends_the_area_under_it() {
        let curve = Curve::new(&[
            Stretch {
                length_ns: SECOND_NS,
                from_rps: 0.0,
                to_rps: 200.0,
            },
            Stretch {
                length_ns: SECOND_NS,
                from_rps: 50.0,
                to_rps: 50.0,
            },
        ]);
        let due = all(Schedule::even(curve, 0, 1));
        assert_eq!(due.len(), 150);
        // half of the ramp's requests are due in its last 29.3 %
        assert!(due[50].abs_diff(707_106_781) < 2, "{}", due[50]);
        assert!(due.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    #[test]
    fn a_ramp_from_zero_behind_a_warm_up_begins_with_the_ramp() {
        let part = |from_rps, to_rps| Stretch {
            length_ns: SECOND_NS,
            from_rps,
            to_rps,
        };
        let due = all(Schedule::even(
            Curve::new(&[part(0.0, 0.0), part(0.0, 4.0)]),
            0,
            1,
        ));
        assert_eq!((due.len(), due[0]), (2, SECOND_NS));
    }

    #[test]
    fn poisson_has_its_rate_over_all_threads() {
        let curve = constant(10_000.0, 10 * SECOND_NS);
        let total: usize = (0..4)
            .map(|thread| all(Schedule::poisson(curve.clone(), thread, 4, 1)).len())
            .sum();
        assert!((total as f64 / 100_000.0 - 1.0).abs() < 0.02, "{total}");
    }

    #[test]
    fn poisson_gaps_pass_a_test_of_their_distribution() {
        let due = all(Schedule::poisson(
            constant(1000.0, 20 * SECOND_NS),
            0,
            1,
            42,
        ));
        let mut shares: Vec<f64> = due
            .windows(2)
            .map(|pair| 1.0 - (-((pair[1] - pair[0]) as f64) / 1e6).exp())
            .collect();
        shares.sort_by(f64::total_cmp);
        // Anderson-Darling against the known exponential; 3.9 is its 1 % point
        let n = shares.len();
        let sum: f64 = (0..n)
            .map(|i| (2 * i + 1) as f64 * (shares[i].ln() + (1.0 - shares[n - 1 - i]).ln()))
            .sum();
        let statistic = -(n as f64) - sum / n as f64;
        assert!(statistic < 3.9, "{statistic}");
    }

    #[test]
    fn a_backlog_is_counted_without_being_kept() {
        let mut schedule = Schedule::even(constant(50e6, 30 * SECOND_NS), 0, 1);
        schedule.next_ns();
        assert_eq!(schedule.left_until(30e9), 1_500_000_000);
        assert_eq!(schedule.ahead_ns(50_000_000), Some(SECOND_NS));
        let endless = Schedule::even(constant(1e15, 1_000_000 * SECOND_NS), 0, 4096);
        assert_eq!(endless.left_until(1e15), COUNT_MAX);
        assert!(endless.ahead_ns(COUNT_MAX).is_some());
    }
}
