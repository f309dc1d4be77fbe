//! One distribution of durations: the buckets of an HdrHistogram and the exact minimum, maximum
//! and sum.
//!
//! Most distributions of a run hold nothing and the others a narrow range, and they are added up and
//! cleared once a second. So there are only buckets where durations fell: a group of them is made
//! when the first comes.

use hdrhistogram::Histogram;

/// Resolution at the low end, 2^6; an answer through a user-level stack takes a few microseconds.
const LOWEST_NS: u64 = 1 << LOWEST_BITS;
const LOWEST_BITS: u32 = 6;
/// Longest duration kept apart; longer ones count as this.
const HIGHEST_NS: u64 = 24 * 3600 * 1_000_000_000;
/// Three digits: a bucket is at most 0.1 % wide, or as wide as the resolution at the low end.
const DIGITS: u8 = 3;
/// Three digits need 2,000 buckets below the first doubling of their width: 2^11, and half of them
/// for each doubling after it.
const HALF_BITS: u32 = 10;
const HALF: usize = 1 << HALF_BITS;
/// Buckets that are made together: those of one width.
type Group = Box<[u64; HALF]>;
/// Groups up to the longest duration.
const GROUPS: usize = (bucket(HIGHEST_NS) >> HALF_BITS) + 1;
/// A quantile is given if at least so many samples lie above it.
const SAMPLES_ABOVE_MIN: f64 = 10.0;

/// The bucket of a duration.
#[inline]
const fn bucket(duration_ns: u64) -> usize {
    let finest = (2 << (HALF_BITS + LOWEST_BITS)) - 1;
    let doublings = 63 - HALF_BITS - LOWEST_BITS - (duration_ns | finest).leading_zeros();
    let within = (duration_ns >> (doublings + LOWEST_BITS)) as usize;
    ((doublings as usize) << HALF_BITS) + within
}

/// The first and the last duration of a bucket.
fn span_ns(bucket: usize) -> (u64, u64) {
    let doublings = (bucket >> HALF_BITS).saturating_sub(1);
    let within = (bucket - (doublings << HALF_BITS)) as u64;
    let bits = doublings as u32 + LOWEST_BITS;
    (within << bits, ((within + 1) << bits) - 1)
}

/// Durations in nanoseconds.
#[derive(Clone, Debug)]
pub struct Latency {
    /// How many there are in each bucket.
    groups: [Option<Group>; GROUPS],
    count: u64,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
    /// Those among them that are lower bounds: requests that were lost, with the time they were
    /// outstanding.
    lost: Option<Box<Latency>>,
    /// Requests that were dropped: they stand nowhere among the durations and would have taken longer
    /// than none at all, so they raise percentiles by an unknown amount.
    dropped: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Latency {
            groups: [const { None }; GROUPS],
            count: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            sum_ns: 0,
            lost: None,
            dropped: 0,
        }
    }
}

impl Latency {
    /// A distribution read back from a result file; sum and ends as they were recorded there.
    pub fn restore(histogram: Histogram<u64>, min_ns: u64, max_ns: u64, mean_ns: f64) -> Latency {
        let mut own = Latency::default();
        // files of an older version may have other bounds; values keep their bucket's edge
        for step in histogram.iter_recorded() {
            own.record_many(step.value_iterated_to(), step.count_at_value());
        }
        let sum_ns = (mean_ns * own.count as f64).round() as u128;
        (own.min_ns, own.max_ns, own.sum_ns) = (min_ns, max_ns, sum_ns);
        own
    }

    /// Adds one duration.
    #[inline]
    pub fn record(&mut self, duration_ns: u64) {
        self.record_many(duration_ns, 1);
    }

    /// Adds the same duration `times` times.
    #[inline]
    pub fn record_many(&mut self, duration_ns: u64, times: u64) {
        let bucket = bucket(duration_ns.min(HIGHEST_NS));
        self.group(bucket >> HALF_BITS)[bucket % HALF] += times;
        self.count += times;
        self.min_ns = self.min_ns.min(duration_ns);
        self.max_ns = self.max_ns.max(duration_ns);
        self.sum_ns += u128::from(duration_ns) * u128::from(times);
    }

    /// Adds requests that were lost after this time: without the loss it would have been longer.
    pub fn record_lost(&mut self, outstanding_ns: u64, times: u64) {
        self.record_many(outstanding_ns, times);
        let lost = self.lost.get_or_insert_default();
        lost.record_many(outstanding_ns, times);
    }

    /// Says that requests were dropped, whose durations stay unknown.
    pub fn note_dropped(&mut self, times: u64) {
        self.dropped += times;
    }

    /// How many were dropped.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether some durations are lower bounds or missing, so that mean and maximum may be higher.
    pub fn is_incomplete(&self) -> bool {
        self.dropped > 0 || self.lost().is_some()
    }

    /// Those among them that are lower bounds.
    pub fn lost(&self) -> Option<&Latency> {
        self.lost.as_deref().filter(|lost| !lost.is_empty())
    }

    /// Says of durations that were restored which of them are lower bounds.
    pub fn set_lost(&mut self, lost: Latency) {
        self.lost = Some(Box::new(lost));
    }

    #[inline]
    fn group(&mut self, number: usize) -> &mut Group {
        self.groups[number].get_or_insert_with(|| Box::new([0; HALF]))
    }

    /// The buckets that hold something, in order, with their counts.
    fn filled(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let groups = self.groups.iter().enumerate();
        let made = groups.filter_map(|(number, group)| Some((number, group.as_ref()?)));
        let counts = made.flat_map(|(number, group)| {
            let first = number << HALF_BITS;
            (first..).zip(group.iter().copied())
        });
        counts.filter(|(_, count)| *count > 0)
    }

    /// The filled buckets in order: longest duration and count of each.
    pub fn recorded(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let filled = self.filled();
        filled.map(|(bucket, count)| (span_ns(bucket).1, count))
    }

    /// Adds all of another distribution: counts, never averages.
    pub fn add(&mut self, other: &Latency) {
        for (number, more) in other.groups.iter().enumerate() {
            let Some(more) = more else { continue };
            let own = self.group(number);
            own.iter_mut()
                .zip(more.iter())
                .for_each(|(own, more)| *own += more);
        }
        self.count += other.count;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
        self.dropped += other.dropped;
        if let Some(lost) = other.lost() {
            self.lost.get_or_insert_default().add(lost);
        }
    }

    /// The distribution without a part of it. Its ends are known to the width of a bucket, and exactly
    /// where the part does not lie at them.
    pub fn without(&self, part: &Latency) -> Latency {
        let mut left = Latency::default();
        let mut taken = part.filled().peekable();
        for (bucket, count) in self.filled() {
            let gone = taken.next_if(|(other, _)| *other == bucket);
            let count = count.saturating_sub(gone.map_or(0, |(_, gone)| gone));
            if count > 0 {
                let (first, last) = span_ns(bucket);
                left.record_many(last, count);
                left.min_ns = left.min_ns.min(first.max(self.min_ns));
                left.max_ns = last.min(self.max_ns);
            }
        }
        if left.count + part.count == self.count {
            left.sum_ns = self.sum_ns.saturating_sub(part.sum_ns);
        }
        if let Some(lost) = self.lost() {
            let gone = part.lost().cloned().unwrap_or_default();
            left.set_lost(lost.without(&gone));
        }
        left.dropped = self.dropped.saturating_sub(part.dropped);
        left
    }

    /// Forgets everything, and keeps the memory.
    pub fn clear(&mut self) {
        for group in self.groups.iter_mut().flatten() {
            group.fill(0);
        }
        (self.count, self.min_ns, self.max_ns, self.sum_ns) = (0, u64::MAX, 0, 0);
        (self.lost, self.dropped) = (None, 0);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.count == 0
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
        let mean = self.mean_ns();
        let squares = self.filled().map(|(bucket, count)| {
            let off = self.middle_ns(bucket) - mean;
            off * off * count as f64
        });
        // an empty sum is -0, which plus 0 is 0
        (squares.sum::<f64>() / self.count().max(1) as f64 + 0.0).sqrt()
    }

    /// The duration that a bucket counts as: its middle, unless none can be there.
    fn middle_ns(&self, bucket: usize) -> f64 {
        let (first, last) = span_ns(bucket);
        let middle = (first + last) as f64 / 2.0;
        middle.clamp(self.min_ns as f64, self.max_ns as f64)
    }

    /// The value that a share `quantile` (0 to 1) does not exceed, to the width of a bucket.
    pub fn at_ns(&self, quantile: f64) -> u64 {
        if quantile <= 0.0 {
            return self.min_ns();
        }
        let at = self.bucket_at(self.rank(quantile));
        at.map_or(0, |bucket| span_ns(bucket).1)
            .min(self.max_ns)
            .max(self.min_ns())
    }

    /// Which of the durations in order a quantile is, from 1 on.
    fn rank(&self, quantile: f64) -> u64 {
        // a share such as 0.9 is a little more than nine tenths; the rank shall not be one more
        let rank = (quantile * self.count as f64 * (1.0 - f64::EPSILON)).ceil();
        (rank as u64).clamp(1, self.count.max(1))
    }

    /// The bucket that the duration of a rank lies in.
    fn bucket_at(&self, rank: u64) -> Option<usize> {
        let mut until = 0;
        let at = self.filled().find(|(_, count)| {
            until += count;
            until >= rank
        });
        at.map(|(bucket, _)| bucket)
    }

    /// Whether the value of a quantile is only a lower bound: it would be another one if the lost
    /// and dropped requests had taken for ever instead of the time after which they were lost.
    pub fn is_bound(&self, quantile: f64) -> bool {
        if !self.is_incomplete() {
            return false;
        }
        // among all that were due the dropped ones come last
        let all = (self.count + self.dropped) as f64;
        let rank = (quantile * all * (1.0 - f64::EPSILON)).ceil() as u64;
        let lost = self.lost().into_iter().flat_map(Latency::filled);
        let mut gone = lost.peekable();
        let mut until = 0;
        let longest = self.filled().find(|&(bucket, count)| {
            let lost = gone.next_if(|(other, _)| *other == bucket);
            until += count - lost.map_or(0, |(_, lost)| lost);
            until >= rank
        });
        let told = self.bucket_at(self.rank(quantile));
        longest.map(|(bucket, _)| bucket) != told
    }

    /// As [`Latency::at_ns`], or nothing where too few samples lie above to know it.
    pub fn known_at_ns(&self, quantile: f64) -> Option<u64> {
        let above = self.count() as f64 * (1.0 - quantile);
        (above + 1e-6 >= SAMPLES_ABOVE_MIN).then(|| self.at_ns(quantile))
    }

    /// The share of durations within `deviations` standard deviations of the mean.
    pub fn share_within(&self, deviations: f64) -> f64 {
        let (mean, reach) = (self.mean_ns(), self.stdev_ns() * deviations);
        let near = self
            .filled()
            .filter(|(bucket, _)| (self.middle_ns(*bucket) - mean).abs() <= reach);
        let within: u64 = near.map(|(_, count)| count).sum();
        within as f64 / self.count().max(1) as f64
    }

    /// The same as an HdrHistogram, for the formats of other tools.
    pub fn histogram(&self) -> Histogram<u64> {
        let mut histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, DIGITS)
            .expect("the bounds are constants");
        for (value_ns, count) in self.recorded() {
            histogram.saturating_record_n(value_ns, count);
        }
        histogram
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
    fn equal_durations_and_none_deviate_by_nothing() {
        let mut latency = Latency::default();
        assert_eq!(format!("{:.2}", latency.stdev_ns()), "0.00");
        latency.record_many(123_456_789, 3);
        assert_eq!((latency.stdev_ns(), latency.share_within(1.0)), (0.0, 1.0));
    }

    #[test]
    fn what_is_left_without_a_part_has_the_mean_that_it_has() {
        let (mut all, mut part) = (Latency::default(), Latency::default());
        (1..=9u64).for_each(|n| all.record(n * 1_000_001));
        assert_eq!(
            (all.without(&part).mean_ns(), all.without(&part).min_ns()),
            (5_000_005.0, 1_000_001)
        );
        part.record(9_000_009);
        let left = all.without(&part);
        assert_eq!((left.count(), left.mean_ns()), (8, 4_500_004.5));
        let off = left.max_ns().abs_diff(8_000_008);
        assert!(off < 8_000, "{off}");
        part.add(&left);
        assert!(all.without(&part).is_empty());
    }

    #[test]
    fn a_bucket_is_a_thousandth_wide_or_as_wide_as_the_resolution() {
        for duration_ns in (0..30).flat_map(|doubling| [1 << doubling, (3 << doubling) + 1]) {
            let (first, last) = span_ns(bucket(duration_ns));
            let width = last - first + 1;
            assert!((first..=last).contains(&duration_ns));
            assert!(
                width == LOWEST_NS || width * 1000 <= duration_ns,
                "{duration_ns}: {width}"
            );
        }
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
    fn a_quantile_that_a_lost_request_may_raise_is_a_bound() {
        let mut latency = Latency::default();
        latency.record_many(1_000_000, 90);
        latency.record_many(2_000_000, 5);
        assert!(!latency.is_bound(1.0), "nothing is lost");
        latency.record_lost(10_000, 5);
        assert_eq!(latency.count(), 100);
        // with the lost ones last, rank 85 of the answered is still one of 1 ms, rank 91 is not
        assert!(!latency.is_bound(0.5) && !latency.is_bound(0.9));
        assert!(latency.is_bound(0.93) && latency.is_bound(1.0));
        let mut sum = Latency::default();
        sum.add(&latency);
        assert!(sum.is_bound(0.93));
        assert_eq!(sum.lost().map(Latency::count), Some(5));
        sum.clear();
        assert!(sum.lost().is_none());
    }

    #[test]
    fn dropped_requests_make_bounds_of_what_they_may_raise() {
        let mut latency = Latency::default();
        latency.record_many(1_000_000, 90);
        latency.record_many(2_000_000, 10);
        latency.note_dropped(25);
        assert_eq!(
            latency.at_ns(0.5),
            latency.at_ns(0.7),
            "percentiles of the sent requests"
        );
        assert!(!latency.is_bound(0.5) && latency.is_bound(0.75) && latency.is_bound(1.0));
        let mut sum = Latency::default();
        sum.add(&latency);
        assert_eq!(sum.dropped(), 25);
        sum.clear();
        assert!(!sum.is_incomplete());
    }

    #[test]
    fn a_part_taken_away_leaves_the_rest() {
        let (mut one, mut two) = (Latency::default(), Latency::default());
        (1..500u64).for_each(|n| one.record(n * 7_001));
        (1..300u64).for_each(|n| two.record(n * 11_003));
        two.record_lost(9_000_000, 3);
        let mut both = one.clone();
        both.add(&two);
        let left = both.without(&two);
        assert_eq!((left.count(), left.lost().is_none()), (one.count(), true));
        assert_eq!(left.at_ns(0.9), one.at_ns(0.9));
        assert_eq!(both.without(&one).lost().map(Latency::count), Some(3));
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
        one.add(&two);
        assert_eq!(one.histogram(), both.histogram());
        for quantile in [0.1, 0.5, 0.9, 1.0] {
            assert_eq!(one.at_ns(quantile), both.at_ns(quantile));
        }
        assert_eq!(
            (one.mean_ns(), one.max_ns()),
            (both.mean_ns(), both.max_ns())
        );
    }

    /// Durations of every size, some at the edges of buckets.
    fn many() -> impl Iterator<Item = u64> {
        let mut state = 1u64;
        let any = (0..20_000).map(move |n| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 18) >> (n % 46)
        });
        let edges = (0..=46).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 1]);
        any.chain(edges)
    }

    #[test]
    fn buckets_are_those_of_an_hdr_histogram() {
        let model = Latency::default().histogram();
        for duration_ns in many() {
            let (first, last) = span_ns(bucket(duration_ns));
            assert!((first..=last).contains(&duration_ns), "{duration_ns}");
            assert_eq!(
                (first, last),
                (
                    model.lowest_equivalent(duration_ns),
                    model.highest_equivalent(duration_ns)
                ),
                "{duration_ns}"
            );
        }
    }

    #[test]
    fn quantiles_are_those_of_an_hdr_histogram() {
        let (mut own, mut model) = (Latency::default(), Latency::default().histogram());
        for duration_ns in many() {
            own.record(duration_ns);
            model.saturating_record(duration_ns);
        }
        assert_eq!(own.histogram(), model);
        for quantile in [0.0, 0.1, 0.5, 0.75, 0.9, 0.99, 0.999, 0.9999, 1.0] {
            let expected = model.value_at_quantile(quantile);
            let expected = expected.min(own.max_ns()).max(own.min_ns());
            assert_eq!(own.at_ns(quantile), expected, "{quantile}");
        }
        assert!((own.stdev_ns() / model.stdev() - 1.0).abs() < 0.001);
    }

    #[test]
    fn longer_than_the_longest_counts_as_the_longest() {
        let mut latency = Latency::default();
        latency.record(u64::MAX);
        latency.record(HIGHEST_NS);
        assert_eq!(latency.recorded().map(|(_, count)| count).sum::<u64>(), 2);
        assert_eq!(latency.max_ns(), u64::MAX);
    }

    #[test]
    fn a_cleared_distribution_is_as_new() {
        let mut latency = Latency::default();
        many().for_each(|duration_ns| latency.record(duration_ns));
        latency.clear();
        assert!(latency.is_empty());
        assert_eq!(latency.recorded().count(), 0);
        assert_eq!(
            (latency.min_ns(), latency.max_ns(), latency.at_ns(0.5)),
            (0, 0, 0)
        );
    }

    #[test]
    fn a_restored_distribution_is_cleared_and_added_whole() {
        let mut latency = Latency::default();
        many().for_each(|duration_ns| latency.record(duration_ns));
        let (min_ns, max_ns) = (latency.min_ns(), latency.max_ns());
        let mut back = Latency::restore(latency.histogram(), min_ns, max_ns, latency.mean_ns());
        assert_eq!(back.histogram(), latency.histogram());
        let mut sum = Latency::default();
        sum.add(&back);
        assert_eq!(sum.histogram(), latency.histogram());
        back.clear();
        assert_eq!(back.recorded().count(), 0);
    }
}
