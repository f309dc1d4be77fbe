//! Congestion avoidance: CUBIC (RFC 9438) and Reno (RFC 5681), in segments and integers.

use crate::config::Congestion;
use crate::hystart::{HyStart, Round};

/// Multiplicative decrease of CUBIC, in 1024ths: 0.7.
const BETA: u64 = 717;
/// Most acknowledged segments for one more while the maximum of the path is not known (as Linux has it).
const PROBING_PACE: u32 = 20;
/// How long a pace holds while the window stays (as Linux's bictcp_update).
const PACE_US: u64 = 31_000;
/// Time after a recovery in which round-trip times still show its queue.
const FRESH_US: u64 = 1_000_000;

/// What a connection remembers for its congestion control.
#[derive(Clone, Copy, Default)]
pub struct Control {
    /// Which algorithm.
    pub algorithm: Congestion,
    /// Acknowledged segments that have not yet made the window one larger.
    credit: u32,
    epoch_us: u64,
    window_max: u32,
    origin: u32,
    k_ms: u64,
    /// The window that Reno would have, in 1024ths of a segment.
    reno_window: u64,
    /// The pace found last, for which window, and when.
    pace: (u32, u32),
    paced_us: u64,
    hystart: HyStart,
}

impl Control {
    /// A new connection's.
    pub fn new(algorithm: Congestion) -> Control {
        Control {
            algorithm,
            ..Control::default()
        }
    }

    /// Reads a word of it.
    #[inline]
    pub fn touch(&self) -> u32 {
        self.window_max
    }

    /// The slow start threshold after a loss (RFC 9438, 4.6; RFC 5681, equation 4).
    pub fn threshold_after_loss(&mut self, window: u32) -> u32 {
        match self.algorithm {
            Congestion::NewReno => (window / 2).max(2),
            Congestion::Cubic => {
                self.epoch_us = 0;
                // Fast convergence: leave room for newcomers (RFC 9438, 4.7).
                self.window_max = if window < self.window_max {
                    (u64::from(window) * (1024 + BETA) / 2048) as u32
                } else {
                    window
                };
                ((u64::from(window) * BETA / 1024) as u32).max(2)
            }
        }
    }

    /// Forgets the curve: a connection was idle, and begins again.
    pub fn restart(&mut self) {
        self.epoch_us = 0;
        self.credit = 0;
    }

    /// Forgets the old maximum too: after a timeout the curve begins where slow start ends (RFC 9438, 4.8).
    pub fn restart_after_timeout(&mut self) {
        self.restart();
        self.window_max = 0;
        self.hystart.restart();
    }

    /// Nothing was sent for a while: the curve does not go on without segments (RFC 9438, 5.8).
    pub fn after_pause(&mut self, pause_us: u64, now_us: u64) {
        if self.epoch_us > 0 {
            self.epoch_us = (self.epoch_us + pause_us).min(now_us);
        }
    }

    /// A round-trip time in slow start with this window: whether slow start should end here.
    #[inline]
    pub fn is_filled(&mut self, window: u32, round: &Round) -> bool {
        let is_fresh = self.epoch_us > 0 && round.now_us - self.epoch_us < FRESH_US;
        self.algorithm == Congestion::Cubic && !is_fresh && self.hystart.is_filled(window, round)
    }

    /// The window after `acked` segments were acknowledged with the window in full use.
    #[inline]
    pub fn grow(
        &mut self,
        window: u32,
        threshold: u32,
        acked: u32,
        rtt_us: u32,
        now_us: u64,
    ) -> u32 {
        if window >= threshold {
            return self.avoid(window, acked, rtt_us, now_us);
        }
        let grown = (window + acked).min(threshold);
        match acked - (grown - window) {
            0 => grown,
            rest => self.avoid(grown, rest, rtt_us, now_us),
        }
    }

    fn avoid(&mut self, mut window: u32, acked: u32, rtt_us: u32, now_us: u64) -> u32 {
        let per_segment = match self.algorithm {
            Congestion::NewReno => window.max(1),
            Congestion::Cubic => self.cubic_pace(window, acked, rtt_us, now_us).max(1),
        };
        // Where the curve was flat hundreds were gathered that are worth one step, not one for each at the
        // pace that the curve has now (RFC 9438, 4.4).
        if self.credit >= per_segment {
            self.credit = 0;
            window += 1;
        }
        self.credit += acked;
        let steps = self.credit / per_segment;
        self.credit -= steps * per_segment;
        window + steps
    }

    /// How many acknowledged segments make the window one larger.
    fn cubic_pace(&mut self, window: u32, acked: u32, rtt_us: u32, now_us: u64) -> u32 {
        if self.epoch_us == 0 {
            self.begin_epoch(window, now_us);
        }
        // RFC 9438, 4.3: alpha is 3 (1 - beta) / (1 + beta) = 0.53 below the old maximum, then 1.
        let is_known = self.window_max > 0;
        let alpha = if is_known && self.reno_window >= u64::from(self.window_max) * 1024 {
            1024
        } else {
            542
        };
        self.reno_window += u64::from(acked) * alpha / u64::from(window.max(1));
        if self.pace.1 == window && now_us - self.paced_us <= PACE_US {
            return self.pace.0;
        }
        let elapsed_ms = (now_us - self.epoch_us + u64::from(rtt_us)) / 1_000;
        let target = self
            .cubic_window(elapsed_ms)
            .max(self.reno_window / 1024)
            .min(u64::from(window) * 3 / 2) as u32;
        let pace = match target.saturating_sub(window) {
            0 => window.saturating_mul(100),
            missing => (window / missing).max(2),
        };
        let most = if is_known { u32::MAX } else { PROBING_PACE };
        self.pace = (pace.min(most), window);
        self.paced_us = now_us;
        self.pace.0
    }

    fn begin_epoch(&mut self, window: u32, now_us: u64) {
        self.epoch_us = now_us.max(1);
        self.credit = 0;
        self.pace = (0, 0);
        self.reno_window = u64::from(window) * 1024;
        let below = u64::from(self.window_max.saturating_sub(window));
        self.origin = self.window_max.max(window);
        // K = cbrt((W_max - cwnd) / C) seconds, with C = 0.4.
        self.k_ms = cube_root(below * 5 / 2 * 1_000_000_000);
    }

    /// W_cubic(t) = C (t - K)^3 + W_max.
    fn cubic_window(&self, elapsed_ms: u64) -> u64 {
        let offset = elapsed_ms.abs_diff(self.k_ms).min(1_000_000);
        let change = offset * offset * offset / 1_000_000_000 * 2 / 5
            + offset * offset * offset % 1_000_000_000 * 2 / 5 / 1_000_000_000;
        if elapsed_ms < self.k_ms {
            u64::from(self.origin).saturating_sub(change)
        } else {
            u64::from(self.origin) + change
        }
    }
}

/// The integer part of the cube root.
fn cube_root(value: u64) -> u64 {
    let (mut root, mut rest) = (0u64, value);
    for shift in (0..64).step_by(3).rev() {
        root *= 2;
        let step = (3 * root * (root + 1) + 1) as u128;
        if u128::from(rest >> shift) >= step {
            rest -= (step as u64) << shift;
            root += 1;
        }
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots_are_exact() {
        for root in [0u64, 1, 2, 3, 10, 999, 100_000, 2_642_245] {
            let cube = root * root * root;
            assert_eq!(cube_root(cube), root);
            if cube > 1 {
                assert_eq!(cube_root(cube - 1), root - 1);
            }
        }
    }

    #[test]
    fn slow_start_grows_by_what_was_acknowledged() {
        let mut control = Control::default();
        assert_eq!(control.grow(10, u32::MAX, 10, 10_000, 1), 20);
    }

    /// RFC 5681, 3.1: about one segment in a round trip.
    #[test]
    fn reno_adds_one_segment_in_a_window() {
        let mut control = Control {
            algorithm: Congestion::NewReno,
            ..Control::default()
        };
        let mut window = 20;
        for _ in 0..20 {
            window = control.grow(window, 10, 1, 10_000, 1);
        }
        assert_eq!(window, 21);
    }

    /// As on Linux: a burst of acknowledgments does not find its own pace in its middle.
    #[test]
    fn a_pace_holds_for_31_ms_while_the_window_stays() {
        let mut control = Control::default();
        let (mut window, mut now_us) = (7, 1_000_000);
        for pause_ms in [2, 98, 2, 2, 2, 2, 2, 2, 98, 2, 2, 2, 2, 2, 2] {
            now_us += pause_ms * 1_000;
            window = control.grow(window, 7, 1, 100_000, now_us);
            assert_eq!(window, 7);
        }
        window = control.grow(window, 7, 1, 100_000, now_us + 98_000);
        assert_eq!(window, 8);
    }

    /// RFC 9438, 4.4: acknowledgments of the flat part are not saved up for the steeper one behind it.
    #[test]
    fn cubic_never_runs_ahead_of_its_curve() {
        for (maximum, rtt_us) in [
            (50, 100_000),
            (100, 100_000),
            (400, 40_000),
            (1_000, 100_000),
        ] {
            let mut control = Control::default();
            let threshold = control.threshold_after_loss(maximum);
            let (mut window, mut now_us) = (threshold, 1_000_000);
            while now_us < 15_000_000 {
                for _ in 0..window.div_ceil(2) {
                    now_us += u64::from(rtt_us * 2 / window);
                    window = control.grow(window, threshold, 2, rtt_us, now_us);
                    let elapsed_ms = (now_us - control.epoch_us + u64::from(rtt_us)) / 1_000;
                    let curve = control.cubic_window(elapsed_ms);
                    let most = curve.max(control.reno_window / 1024) as u32;
                    assert!(window <= most.max(threshold) + 1, "{window}, {most}");
                }
            }
        }
    }

    /// RFC 9438, figure 1: back at the old maximum after K, flat there, steeper behind.
    #[test]
    fn cubic_returns_to_the_old_maximum_after_k_and_goes_beyond() {
        let mut control = Control::default();
        let threshold = control.threshold_after_loss(1_000);
        assert_eq!(threshold, 700);
        let (mut window, mut now_us) = (threshold, 1_000_000);
        let mut windows = alloc::vec::Vec::new();
        for _ in 0..200 {
            now_us += 100_000;
            window = control.grow(window, threshold, window, 100_000, now_us);
            windows.push(window);
        }
        // K = cbrt(300 / 0.4) = 9.1 s.
        assert!((985..=1_015).contains(&windows[90]), "{}", windows[90]);
        assert!(
            windows[50] > 950 && windows[199] > 1_300,
            "{} {}",
            windows[50],
            windows[199]
        );
    }
}
