//! How many separate events the slow answers belong to. A percentile of ten thousand samples says
//! little if all that lie above it were in flight during the same stall.
//!
//! Of each short stretch of time the longest latency is kept with its place in time. Afterwards
//! those above a threshold are laid on the time line; what overlaps is one episode.

/// Stretch of which one latency is kept: events closer together than this may count as one.
const STRETCH_NS: u64 = 10_000_000;
/// Most latencies kept of a whole run; beyond that the shorter half is given up.
const KEPT_MAX: usize = 200_000;

/// A latency and when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// End, monotonic.
    pub end_ns: u64,
    /// Length.
    pub length_ns: u64,
}

/// The longest latency of each stretch.
#[derive(Clone, Debug, Default)]
pub struct Peaks {
    kept: Vec<Peak>,
    stretch_end_ns: u64,
}

impl Peaks {
    /// Looks at one latency.
    #[inline]
    pub fn note(&mut self, end_ns: u64, length_ns: u64) {
        if end_ns >= self.stretch_end_ns {
            self.stretch_end_ns = end_ns + STRETCH_NS;
            self.kept.push(Peak { end_ns, length_ns });
        } else if let Some(peak) = self.kept.last_mut() {
            if length_ns > peak.length_ns {
                *peak = Peak { end_ns, length_ns };
            }
        }
    }

    /// Adds those of another interval or thread.
    pub fn add(&mut self, other: &Peaks) {
        self.kept.extend_from_slice(&other.kept);
        if self.kept.len() > KEPT_MAX {
            let half = self.kept.len() / 2;
            self.kept
                .select_nth_unstable_by_key(half, |peak| peak.length_ns);
            self.kept.drain(..half);
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.kept.clear();
        self.stretch_end_ns = 0;
    }

    /// Separate episodes among the latencies longer than `threshold_ns`.
    pub fn episodes(&self, threshold_ns: u64) -> usize {
        let long = self
            .kept
            .iter()
            .filter(|peak| peak.length_ns > threshold_ns);
        let mut spans: Vec<(u64, u64)> = long
            .map(|peak| (peak.end_ns.saturating_sub(peak.length_ns), peak.end_ns))
            .collect();
        spans.sort_unstable();
        let (mut episodes, mut reach_ns) = (0, 0);
        for (start_ns, end_ns) in spans {
            episodes += usize::from(episodes == 0 || start_ns > reach_ns);
            reach_ns = reach_ns.max(end_ns);
        }
        episodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn answers_of_one_stall_are_one_episode() {
        let mut peaks = Peaks::default();
        // a stall from 100 to 200 ms, worked off until 250; another from 700 to 800
        for end_ns in (200..250).step_by(5) {
            peaks.note(end_ns * MS, (end_ns - 100) * MS / 2);
        }
        for end_ns in 250..700 {
            peaks.note(end_ns * MS, MS / 10);
        }
        peaks.note(800 * MS, 100 * MS);
        assert_eq!(peaks.episodes(MS), 2);
        assert_eq!(peaks.episodes(75 * MS), 1);
        assert_eq!(peaks.episodes(200 * MS), 0);
    }

    #[test]
    fn threads_that_were_slow_together_share_an_episode() {
        let (mut one, mut two) = (Peaks::default(), Peaks::default());
        one.note(50 * MS, 20 * MS);
        two.note(45 * MS, 10 * MS);
        two.note(90 * MS, 10 * MS);
        one.add(&two);
        assert_eq!(one.episodes(MS), 2);
    }

    #[test]
    fn long_runs_keep_the_longest() {
        let mut sum = Peaks::default();
        for second in 0..300u64 {
            let mut part = Peaks::default();
            for stretch in 0..1000 {
                let end_ns = (second * 1000 + stretch) * STRETCH_NS;
                part.note(end_ns, 1 + stretch % 10);
            }
            sum.add(&part);
        }
        assert!(sum.kept.len() <= KEPT_MAX);
        assert_eq!(sum.episodes(9), 300 * 100);
    }
}
