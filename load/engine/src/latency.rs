//! One distribution of durations: an HdrHistogram and the exact minimum, maximum and sum.

use hdrhistogram::Histogram;

/// Resolution at the low end; an answer through a user-level stack takes a few microseconds.
const LOWEST_NS: u64 = 64;
/// Longest duration kept apart; longer ones count as this.
const HIGHEST_NS: u64 = 24 * 3600 * 1_000_000_000;
/// Three digits: a bucket is at most 0.1 % wide.
const DIGITS: u8 = 3;
/// A quantile is given if at least so many samples lie above it.
const SAMPLES_ABOVE_MIN: f64 = 10.0;

/// Durations in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
}

impl Default for Latency {
    fn default() -> Self {
        Latency::from_histogram(empty_histogram())
    }
}

fn empty_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS).expect("the bounds are constants")
}

impl Latency {
    fn from_histogram(histogram: Histogram<u64>) -> Latency {
        Latency {
            histogram,
            min_ns: u64::MAX,
            max_ns: 0,
            sum_ns: 0,
        }
    }

    /// A distribution read back from a result file; sum and ends as they were recorded there.
    pub fn restore(histogram: Histogram<u64>, min_ns: u64, max_ns: u64, mean_ns: f64) -> Latency {
        let sum_ns = (mean_ns * histogram.len() as f64).round() as u128;
        let mut own = empty_histogram();
        // files of an older version may have other bounds; values keep their bucket's edge
        for bucket in histogram.iter_recorded() {
            own.saturating_record_n(bucket.value_iterated_to(), bucket.count_at_value());
        }
        Latency {
            histogram: own,
            min_ns,
            max_ns,
            sum_ns,
        }
    }

    /// Adds one duration.
    #[inline]
    pub fn record(&mut self, duration_ns: u64) {
        self.record_many(duration_ns, 1);
    }

    /// Adds the same duration `times` times.
    #[inline]
    pub fn record_many(&mut self, duration_ns: u64, times: u64) {
        self.histogram.saturating_record_n(duration_ns, times);
        self.min_ns = self.min_ns.min(duration_ns);
        self.max_ns = self.max_ns.max(duration_ns);
        self.sum_ns += u128::from(duration_ns) * u128::from(times);
    }

    /// Adds all of another distribution: counts, never averages.
    pub fn add(&mut self, other: &Latency) {
        if other.is_empty() {
            return;
        }
        self.histogram
            .add(&other.histogram)
            .expect("all histograms have the same bounds");
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }

    /// As [`Latency::add`], touching only the memory of what is there: slower, and small where
    /// many distributions hold little each.
    pub fn add_sparsely(&mut self, other: &Latency) {
        for bucket in other.histogram.iter_recorded() {
            let (value_ns, count) = (bucket.value_iterated_to(), bucket.count_at_value());
            self.histogram.saturating_record_n(value_ns, count);
        }
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        if !self.is_empty() {
            self.histogram.reset();
        }
        (self.min_ns, self.max_ns, self.sum_ns) = (u64::MAX, 0, 0);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.histogram.is_empty()
    }

    /// The shortest, exactly; 0 if there is none.
    pub fn min_ns(&self) -> u64 {
        if self.is_empty() {
            0
        } else {
            self.min_ns
        }
    }

    /// The longest, exactly.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The mean, exactly; 0 if there is none.
    pub fn mean_ns(&self) -> f64 {
        if self.is_empty() {
            0.0
        } else {
            self.sum_ns as f64 / self.count() as f64
        }
    }

    /// The standard deviation, to the width of a bucket.
    pub fn stdev_ns(&self) -> f64 {
        self.histogram.stdev()
    }

    /// The value that a share `quantile` (0 to 1) does not exceed, to the width of a bucket.
    pub fn at_ns(&self, quantile: f64) -> u64 {
        self.histogram
            .value_at_quantile(quantile)
            .min(self.max_ns)
            .max(self.min_ns())
    }

    /// As [`Latency::at_ns`], or nothing where too few samples lie above to know it.
    pub fn known_at_ns(&self, quantile: f64) -> Option<u64> {
        let above = self.count() as f64 * (1.0 - quantile);
        (above + 1e-6 >= SAMPLES_ABOVE_MIN).then(|| self.at_ns(quantile))
    }

    /// The share of durations within `deviations` standard deviations of the mean.
    pub fn share_within(&self, deviations: f64) -> f64 {
        let (mean, reach) = (self.mean_ns(), self.stdev_ns() * deviations);
        let within: u64 = self
            .histogram
            .iter_recorded()
            .filter(|bucket| (bucket.value_iterated_to() as f64 - mean).abs() <= reach)
            .map(|bucket| bucket.count_at_value())
            .sum();
        within as f64 / self.count().max(1) as f64
    }

    /// The histogram itself, for the formats of other tools.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_and_mean_are_exact_and_quantiles_within_a_bucket() {
        let mut latency = Latency::default();
        (1..=1000u64).for_each(|n| latency.record(n * 1_001));
        assert_eq!((latency.min_ns(), latency.max_ns()), (1_001, 1_001_000));
        assert_eq!(latency.mean_ns(), 500.5 * 1_001.0);
        let p90 = latency.at_ns(0.9) as f64;
        assert!((p90 / 900_900.0 - 1.0).abs() < 0.001, "{p90}");
    }

    #[test]
    fn a_quantile_needs_ten_samples_above_it() {
        let mut latency = Latency::default();
        latency.record_many(500, 999);
        assert_eq!(latency.known_at_ns(0.99), None);
        latency.record(500);
        assert!(latency.known_at_ns(0.99).is_some());
        assert_eq!(latency.known_at_ns(0.999), None);
    }

    #[test]
    fn adding_is_as_if_recorded_together() {
        let (mut one, mut two, mut both) =
            (Latency::default(), Latency::default(), Latency::default());
        for n in 0..500u64 {
            one.record(n * 777);
            two.record(n * 99_999);
            both.record(n * 777);
            both.record(n * 99_999);
        }
        let mut sparse = one.clone();
        sparse.add_sparsely(&two);
        one.add(&two);
        assert_eq!(sparse.histogram(), one.histogram());
        assert_eq!(
            (sparse.min_ns(), sparse.mean_ns()),
            (one.min_ns(), one.mean_ns())
        );
        for quantile in [0.1, 0.5, 0.9, 1.0] {
            assert_eq!(one.at_ns(quantile), both.at_ns(quantile));
        }
        assert_eq!(
            (one.mean_ns(), one.max_ns()),
            (both.mean_ns(), both.max_ns())
        );
    }
}
